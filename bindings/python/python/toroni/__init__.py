"""Toroni: a message bus for the processes of one Linux machine, without a broker.

>>> import toroni
>>> bus = toroni.Bus("demo")  # creates it if it does not exist
>>> bus.publisher("plant/boiler/temperature").publish(b"351.2")

>>> for message in toroni.Bus("demo").subscribe("plant/**"):
...     print(message.topic, message.text)

Bus opens a bus. Its publishers take objects with the buffer protocol; its subscribers are iterators for for and
async for. All subscribers see the messages in one order, and one that missed messages gets Lapped, which says how
many. Lost says which messages from elsewhere did not reach the bus. With retained=True, the bus keeps the newest
message of a topic for subscribers that come later. Commands sends commands to the sequencer. toroni.net sends messages
between hosts without a bus. Durations are in seconds, sizes and positions in bytes, and names that end in _ns in
nanoseconds.
"""

from toroni._admin import BusEntry, CleanAction, CleanReport
from toroni._commands import Echo, Sent
from toroni._composition import Composition
from toroni._errors import (
    AlreadyExists,
    Closed,
    Corrupt,
    Error,
    Exclusive,
    ForeignOwner,
    Forked,
    Interrupted,
    Invalid,
    Lapped,
    Lost,
    NoSpace,
    NotFound,
    NotRetained,
    NoValues,
    Overwritten,
    PermissionDenied,
    RetainedFull,
    SettingMismatch,
    System,
    Taken,
    Timeout,
    TooLong,
    TooManyArrivals,
    TooManyRetained,
    Unlinked,
    ValueMissing,
    ValueTooLong,
    WouldWaitForItself,
)
from toroni._inlet import Arrived, Entry, Origin
from toroni._recording import RecordedMessage, Recording, open_recording
from toroni._retained import RetainedMessage
from toroni._router import Router
from toroni._stats import (
    BusStats,
    LockOwner,
    PublisherStats,
    Reopened,
    RetainedStats,
    SubscriberSlotStats,
    SubscriberStats,
    TopicStats,
    ValueStats,
)
from toroni._toroni import (
    Bus,
    Commands,
    ExclusivePublisher,
    ExclusiveTopic,
    Inlet,
    InletTopic,
    Message,
    Pending,
    Policy,
    Publisher,
    Received,
    Subscriber,
    __version__,
    buses,
    clean,
    default_directory,
    matches,
)

__all__ = [
    "AlreadyExists",
    "Arrived",
    "Bus",
    "BusEntry",
    "BusStats",
    "CleanAction",
    "CleanReport",
    "Closed",
    "Commands",
    "Composition",
    "Corrupt",
    "Echo",
    "Entry",
    "Error",
    "Exclusive",
    "ExclusivePublisher",
    "ExclusiveTopic",
    "ForeignOwner",
    "Forked",
    "Inlet",
    "InletTopic",
    "Interrupted",
    "Invalid",
    "Lapped",
    "LockOwner",
    "Lost",
    "Message",
    "NoSpace",
    "NoValues",
    "NotFound",
    "NotRetained",
    "Origin",
    "Overwritten",
    "Pending",
    "PermissionDenied",
    "Policy",
    "Publisher",
    "PublisherStats",
    "Received",
    "RecordedMessage",
    "Recording",
    "Reopened",
    "RetainedFull",
    "RetainedMessage",
    "RetainedStats",
    "Router",
    "Sent",
    "SettingMismatch",
    "Subscriber",
    "SubscriberSlotStats",
    "SubscriberStats",
    "System",
    "Taken",
    "Timeout",
    "TooLong",
    "TooManyArrivals",
    "TooManyRetained",
    "TopicStats",
    "Unlinked",
    "ValueMissing",
    "ValueStats",
    "ValueTooLong",
    "WouldWaitForItself",
    "__version__",
    "buses",
    "clean",
    "default_directory",
    "matches",
    "open_recording",
]
