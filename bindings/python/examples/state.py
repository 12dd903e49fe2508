"""Publishes a setpoint that the bus keeps, or prints it and its changes.

python examples/state.py 350   publishes it
python examples/state.py ""    clears it
python examples/state.py       prints it, however late, then each change; ends with Ctrl-C
"""

import sys

import toroni

bus = toroni.Bus("demo")
if len(sys.argv) > 1:
    setpoint = bus.publisher("plant/setpoint", retained=True)
    if sys.argv[1]:
        setpoint.publish(sys.argv[1].encode())
    else:
        setpoint.clear()
else:
    for message in bus.subscribe("plant/**", retained=True):
        if message.is_cleared:
            print(message.topic, "was cleared", flush=True)
        else:
            print(message.topic, "is" if message.is_retained else "changes to", message.text, flush=True)
