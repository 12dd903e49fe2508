"""A program of Zenoh that knows nothing of Toroni.

peer.py publish KEY COUNT [ATTACHMENT]   puts the numbers 0, 1, …; then deletes the key
peer.py hostile KEY COUNT                puts with attachments of random bytes, on keys that are no topics, too
peer.py subscribe KEY                    prints a JSON object for each sample
peer.py query SELECTOR                   prints a JSON object for each answer
peer.py router ADDRESS                   routes

`publish`, `hostile`, `subscribe` and `router` end with their input. The first line is `ready`.
Environment: ZENOH_CONFIG, the configuration as JSON.
"""

import json
import os
import random
import sys
import time

import zenoh


def show(sample):
    attachment = sample.attachment
    print(
        json.dumps(
            {
                "key": str(sample.key_expr),
                "payload": sample.payload.to_bytes().decode(errors="replace"),
                "encoding": str(sample.encoding),
                "kind": str(sample.kind),
                "attachment": None if attachment is None else attachment.to_bytes().hex(),
            }
        ),
        flush=True,
    )


def publish(session, key, count, attachment=None):
    extra = {} if attachment is None else {"attachment": bytes.fromhex(attachment)}
    publisher = session.declare_publisher(
        key, congestion_control=zenoh.CongestionControl.BLOCK
    )
    wait_for_matching(publisher)
    for number in range(int(count)):
        publisher.put(str(number), **extra)
    publisher.delete()
    # Zenoh drops what it has not sent yet when the session is closed.
    sys.stdin.read()


def wait_for_matching(publisher):
    deadline = time.monotonic() + 60
    while not publisher.matching_status.matching:
        if time.monotonic() > deadline:
            sys.exit("no subscriber")
        time.sleep(0.02)


def hostile(session, key, count):
    publisher = session.declare_publisher(
        key + "/a", congestion_control=zenoh.CongestionControl.BLOCK
    )
    wait_for_matching(publisher)
    seed = int(os.environ.get("TORONI_SEED", "1"))
    print("seed", seed, file=sys.stderr)
    chance = random.Random(seed)
    seen = os.environ.get("SEEN")
    seen = bytes.fromhex(seen) if seen else bytes(32)
    names = ["a", "b/c", "+", "a b", "é", "x" * 300, "%", "@x", "a/@b/c", "~", "a/" * 60 + "z"]
    for number in range(int(count)):
        kind = chance.randrange(3)
        if kind == 0:
            attachment = chance.randbytes(chance.randrange(80))
        elif kind == 1:
            attachment = bytearray(seen)
            for _ in range(chance.randrange(1, 4)):
                attachment[chance.randrange(len(attachment))] = chance.randrange(256)
            attachment = bytes(attachment)
        else:
            attachment = seen[: chance.randrange(len(seen) + 1)]
        payload = chance.randbytes(chance.choice([0, 1, 100, 5000]))
        session.put(
            key + "/" + chance.choice(names),
            payload,
            attachment=attachment,
            congestion_control=zenoh.CongestionControl.BLOCK,
        )
    for control in os.environ.get("CONTROL_KEYS", "").split():
        for _ in range(200):
            session.put(control, chance.randbytes(chance.randrange(200)))
    sys.stdin.read()


def main():
    configuration = zenoh.Config.from_json5(os.environ.get("ZENOH_CONFIG", "{}"))
    # A peer that is killed would leave a file in /dev/shm.
    configuration.insert_json5("transport/shared_memory/enabled", "false")
    command, arguments = sys.argv[1], sys.argv[2:]
    if command == "router":
        configuration.insert_json5("mode", '"router"')
        endpoints = json.dumps([f"tcp/{arguments[0]}:7447"])
        configuration.insert_json5("listen/endpoints", endpoints)
    with zenoh.open(configuration) as session:
        if command == "subscribe":
            subscriber = session.declare_subscriber(arguments[0], show)
            print("ready", flush=True)
            sys.stdin.read()
            subscriber.undeclare()
            return
        print("ready", flush=True)
        if command == "publish":
            publish(session, *arguments)
        elif command == "hostile":
            hostile(session, *arguments)
        elif command == "query":
            for reply in session.get(arguments[0], timeout=10):
                if reply.ok is not None:
                    show(reply.ok)
        elif command == "router":
            sys.stdin.read()
        else:
            sys.exit(__doc__)


main()
