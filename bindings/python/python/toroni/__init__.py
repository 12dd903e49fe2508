"""Toroni: a message bus for the processes of one Linux machine, without a broker.

>>> import toroni
>>> bus = toroni.Bus("demo")  # creates it if it is not there
>>> bus.publisher("plant/boiler/temperature").publish(b"351.2")

>>> for message in toroni.Bus("demo").subscribe("plant/**"):
...     print(message.topic, message.text)

Bus opens a bus; its publishers take anything with the buffer protocol, its subscribers are iterators, also of
async for. Everyone sees the messages in one order; whoever missed some is told how many (Lapped). Durations are
seconds, sizes and positions bytes; a name that ends in _ns is in nanoseconds.
"""

from toroni._admin import BusEntry, CleanAction, CleanReport
from toroni._composition import Composition
from toroni._errors import (
    AlreadyExists,
    Closed,
    Corrupt,
    Error,
    ForeignOwner,
    Forked,
    Interrupted,
    Invalid,
    Lapped,
    NoSpace,
    NotFound,
    PermissionDenied,
    SettingMismatch,
    System,
    Timeout,
    TooLong,
    Unlinked,
    WouldWaitForItself,
)
from toroni._router import Router
from toroni._stats import (
    BusStats,
    LockOwner,
    PublisherStats,
    Reopened,
    SubscriberSlotStats,
    SubscriberStats,
    TopicStats,
)
from toroni._toroni import (
    Bus,
    Message,
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
    "Bus",
    "BusEntry",
    "BusStats",
    "CleanAction",
    "CleanReport",
    "Closed",
    "Composition",
    "Corrupt",
    "Error",
    "ForeignOwner",
    "Forked",
    "Interrupted",
    "Invalid",
    "Lapped",
    "LockOwner",
    "Message",
    "NoSpace",
    "NotFound",
    "PermissionDenied",
    "Policy",
    "Publisher",
    "PublisherStats",
    "Received",
    "Reopened",
    "Router",
    "SettingMismatch",
    "Subscriber",
    "SubscriberSlotStats",
    "SubscriberStats",
    "System",
    "Timeout",
    "TooLong",
    "TopicStats",
    "Unlinked",
    "WouldWaitForItself",
    "__version__",
    "buses",
    "clean",
    "default_directory",
    "matches",
]
