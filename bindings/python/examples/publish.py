"""Publishes one message: the other end of subscribe.py.

python examples/publish.py
"""

import toroni

bus = toroni.Bus("demo")  # creates it if it is not there
publisher = bus.publisher("plant/boiler/temperature")
publisher.publish(b"351.2")
