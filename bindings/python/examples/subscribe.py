"""Prints what is published: start it before publish.py, end it with Ctrl-C.

python examples/subscribe.py
"""

import toroni

bus = toroni.Bus("demo")
for message in bus.subscribe("plant/**"):
    print(message.topic, message.text, flush=True)
