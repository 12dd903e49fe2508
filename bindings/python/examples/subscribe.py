"""Prints messages. Start it before publish.py, and end it with Ctrl-C.

python examples/subscribe.py
"""

import toroni

bus = toroni.Bus("demo")
for message in bus.subscribe("plant/**"):
    print(message.topic, message.text, flush=True)
