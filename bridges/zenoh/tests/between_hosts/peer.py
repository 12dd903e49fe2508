"""A program of Zenoh that knows nothing of Toroni.

peer.py publish KEY COUNT [ATTACHMENT]   puts the numbers 0, 1, …; then deletes the key
peer.py hostile KEY COUNT                puts with attachments of random bytes, on keys that are no topics, too
peer.py subscribe KEY                    prints a JSON object for each sample
peer.py query SELECTOR                   prints a JSON object for each answer
peer.py router ADDRESS[:PORT]            routes
peer.py record                           plays back at random times what it has heard from bridges
peer.py forge                            changes what it has heard from bridges, and sends that

`publish`, `hostile`, `subscribe`, `router`, `record` and `forge` end with their input. The first line is `ready`.
Environment: ZENOH_CONFIG, the configuration as JSON. TORONI_SEED, a number for all that is random.
"""

import json
import os
import random
import sys
import threading
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


# What bridges send. No wildcard matches a segment that begins with @.
BRIDGES = ["**", "@bridge/beat/*/*", "@bridge/batch/*/*", "@bridge/loss/*/*"]


def hear(session):
    """Returns a list that has the newest of what bridges send, and keeps it up."""
    heard = []

    def take(sample):
        attachment = sample.attachment
        attachment = None if attachment is None else attachment.to_bytes()
        # What another of these programs has made is not changed again.
        if sample.payload.to_bytes() != b"forged":
            heard.append((str(sample.key_expr), sample.payload.to_bytes(), attachment))
        del heard[:-1000]

    return heard, [session.declare_subscriber(key, take) for key in BRIDGES]


def at_random(each):
    """Calls a function at random times until the input ends."""
    seed = int(os.environ.get("TORONI_SEED", "1"))
    print("seed", seed, file=sys.stderr)
    chance = random.Random(seed)
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    while not ended.wait(chance.uniform(0, 0.04)):
        each(chance)


def record(session):
    heard, subscribers = hear(session)

    def play(chance):
        for _ in range(min(chance.choice([1, 1, 20]), len(heard))):
            key, payload, attachment = chance.choice(heard)
            session.put(key, payload, attachment=attachment)

    at_random(play)
    del subscribers


def forge(session):
    heard, subscribers = hear(session)
    far = 1 << 22

    def invent(chance):
        samples = [one for one in heard if one[2] is not None and len(one[2]) == 32]
        beats = [one for one in heard if one[0].startswith("@bridge/beat/")]
        kind = chance.randrange(6)
        key, attachment = "evil/" + chance.choice("abc"), chance.randbytes(chance.randrange(40))
        if samples and kind < 4:
            key, _, attachment = chance.choice(samples)
            attachment = bytearray(attachment)
            number = int.from_bytes(attachment[10:16], "little")
            ahead = min(number + far + chance.randrange(1 << 40), (1 << 48) - 2)
            if kind in (0, 1):
                attachment[10:16] = ahead.to_bytes(6, "little")
            if kind in (1, 2):
                attachment[24:28] = chance.randbytes(4)
            if kind == 2:
                attachment[0:4] = chance.randbytes(4)
            if kind == 3:
                attachment[28] |= 2
        elif beats and kind == 4:
            key, payload, _ = chance.choice(beats)
            beat = json.loads(payload)
            beat["until"] += far + chance.randrange(1 << 40)
            beat["beat"] += chance.randrange(3)
            return session.put(key, json.dumps(beat))
        session.put(key, b"forged", attachment=bytes(attachment))

    at_random(invent)
    del subscribers


def main():
    configuration = zenoh.Config.from_json5(os.environ.get("ZENOH_CONFIG", "{}"))
    # A peer that is killed would leave a file in /dev/shm.
    configuration.insert_json5("transport/shared_memory/enabled", "false")
    command, arguments = sys.argv[1], sys.argv[2:]
    if command == "router":
        configuration.insert_json5("mode", '"router"')
        address = arguments[0] if ":" in arguments[0] else arguments[0] + ":7447"
        endpoints = json.dumps([f"tcp/{address}"])
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
        elif command == "record":
            record(session)
        elif command == "forge":
            forge(session)
        elif command == "query":
            for reply in session.get(arguments[0], timeout=10):
                if reply.ok is not None:
                    show(reply.ok)
        elif command == "router":
            sys.stdin.read()
        else:
            sys.exit(__doc__)


main()
