"""Publishes a setpoint that the bus keeps, or prints it and its changes.

python examples/state.py 350   publishes it
python examples/state.py       prints it, however late, then each change; ends with Ctrl-C
"""

import sys

import toroni

bus = toroni.Bus("demo")
if len(sys.argv) > 1:
    setpoint = bus.publisher("plant/setpoint", retained=True)
    setpoint.publish(sys.argv[1].encode())
else:
    for message in bus.subscribe("plant/**", retained=True):
        print(message.topic, "is" if message.is_retained else "changes to", message.text, flush=True)
