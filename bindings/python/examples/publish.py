"""Publishes one message, which subscribe.py receives.

python examples/publish.py
"""

import toroni

bus = toroni.Bus("demo")  # creates it if it does not exist
publisher = bus.publisher("plant/boiler/temperature")
publisher.publish(b"351.2")
