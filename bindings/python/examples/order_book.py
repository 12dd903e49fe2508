"""A small exchange that is the same on all hosts: each applies the orders as events, in their one order.

printf 'buy 100 5\\nsell 99 3\\ncancel 1\\n' | python examples/order_book.py

Each line of the standard input is sent as a command: "buy PRICE AMOUNT", "sell PRICE AMOUNT" or "cancel ORDER". An order's
number is that of its event. Trades are printed, and after each event the digest of the book: it is equal on all hosts. The
feed is TORONI_FEED (default: orders); the host's node brings commands to the leader and events to the bus.
"""

import os
import re
import sys
import threading
from collections.abc import Iterator

import toroni

BUY, SELL = 0, 1


def parse(text: str, signs: str, limit: int) -> int | None:
    """Reads a number below a limit. All hosts must agree on what is a number, and int() takes more than other languages."""
    match = re.fullmatch(f"([{signs}]?)0*([0-9]{{1,20}})", text)
    number = int(match[1] + match[2]) if match else -1
    return number if 0 <= number < limit else None


class Book:
    """Orders that wait: (side, distance from the best price, number) to [price, amount]. The best of a side comes first, and
    of equal ones the oldest."""

    def __init__(self) -> None:
        self.orders: dict[tuple[int, int, int], list[int]] = {}

    def apply(self, number: int, order: str) -> Iterator[str]:
        """Applies an order, and returns its trades. It depends on the book and the order alone: neither on a clock, nor on
        anything random, nor on who asks. Raises ValueError if it is no order."""
        what, first, amount_word, *_ = [*order.split(" "), "", ""]
        if what == "cancel":
            cancelled = parse(first, "+", 2**64)
            if cancelled is None:
                raise ValueError(order)
            self.orders = {key: waits for key, waits in self.orders.items() if key[2] != cancelled}
            return iter(())
        price, amount = parse(first, "+-", 2**40), parse(amount_word, "+", 2**64)
        if what not in ("buy", "sell") or price is None or amount is None:
            raise ValueError(order)
        return self.trade(number, BUY if what == "buy" else SELL, price, amount)

    def trade(self, number: int, side: int, price: int, amount: int) -> Iterator[str]:
        while amount > 0:
            best = min((key for key in self.orders if key[0] != side), default=None)
            if best is None:
                break
            waits = self.orders[best]
            if waits[0] > price if side == BUY else waits[0] < price:
                break
            taken = min(amount, waits[1])
            yield f"{number} trade {taken} at {waits[0]} with {best[2]}"
            amount -= taken
            waits[1] -= taken
            if waits[1] == 0:
                del self.orders[best]
        if amount > 0:
            self.orders[side, -price if side == BUY else price, number] = [price, amount]

    def digest(self) -> str:
        """FNV-1a: a few lines in each language."""
        digest = 0xCBF29CE484222325
        for (side, _, number), (price, amount) in sorted(self.orders.items()):
            numbers = b"".join(value.to_bytes(8, "little") for value in (number, price, amount))
            for byte in bytes([side]) + numbers:
                digest = (digest ^ byte) * 0x100000001B3 % 2**64
        return f"{digest:016x}"


def send_lines(commands: toroni.Commands) -> None:
    for line in sys.stdin.buffer:
        commands.send("order", line.removesuffix(b"\n"))


feed = os.environ.get("TORONI_FEED", "orders")
# From the oldest event in the ring: start before it is overwritten, or read a bus that was rewound.
events = toroni.Bus(feed).subscribe("order", start="oldest")
threading.Thread(target=send_lines, args=[toroni.Commands(feed)], daemon=True).start()
book = Book()
# A loss is an exception. Then the book would be wrong, and the program ends.
for event in events:
    number = event.number or 0
    try:
        for trade in book.apply(number, event.text):
            print(trade)
        what = "digest"
    except ValueError:
        what = "no order, digest"
    print(f"{number} {what} {book.digest()}", flush=True)
