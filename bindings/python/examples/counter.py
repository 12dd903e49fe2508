"""A counter that is the same on all hosts: each adds up the events in their one order.

python examples/counter.py 3 -1 10

The arguments are sent as commands. The feed is TORONI_FEED (default: orders); the host's node brings commands to the leader
and events to the bus.
"""

import os
import re
import sys

import toroni


def parse(text: str) -> int | None:
    """Reads a number of 64 bits: digits, with a sign or without. All hosts must agree on what is a number, and int() takes
    more than other languages do."""
    match = re.fullmatch("([+-]?)0*([0-9]{1,19})", text)
    number = int(match[1] + match[2]) if match else None
    return number if number is not None and -(2**63) <= number < 2**63 else None


if any(parse(argument) is None for argument in sys.argv[1:]):
    sys.exit("counter.py NUMBER...")
feed = os.environ.get("TORONI_FEED", "orders")
# From the oldest event in the ring: start before it is overwritten, or read a bus that was rewound.
events = toroni.Bus(feed).subscribe("counter/add", start="oldest")
commands = toroni.Commands(feed)
for argument in sys.argv[1:]:
    commands.send("counter/add", argument.encode())
total = 0
# A loss is an exception. Then the sum would be wrong, and the program ends.
for event in events:
    # The same on all hosts, so it must not matter who sent it, or when it came.
    total += parse(event.text) or 0
    total = (total + 2**63) % 2**64 - 2**63
    print(f"event {event.number}: {total}", flush=True)
