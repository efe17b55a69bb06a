"""The type of the function with which a test starts a faulty broker."""

from collections.abc import Callable

from faulty_broker import FaultyBroker

StartBroker = Callable[..., FaultyBroker]
