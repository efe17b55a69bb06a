"""How a test starts a broker that it breaks something under."""

from collections.abc import Callable

from faulty_broker import FaultyBroker

StartBroker = Callable[..., FaultyBroker]
