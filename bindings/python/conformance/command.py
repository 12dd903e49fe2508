"""Sends a command and waits for its event: command.py FEED TOPIC TEXT; see bindings/conformance/README.md."""

import sys

import toroni

OUTCOMES = {"event": 1, "lost": 2, "missed": 3}

feed, topic, text = sys.argv[1:]
with toroni.Commands(feed) as commands, commands.send_and_watch(topic, text.encode()) as pending:
    echo = pending.wait(timeout=600.0)
    if echo is None:
        sys.exit("there is no event in time")
    print(*pending.sent, OUTCOMES[echo.outcome], echo.number or 0, sep="\t")
