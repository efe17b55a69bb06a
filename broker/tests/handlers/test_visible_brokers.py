"""Clients see the live brokers, or all brokers if none is alive."""

from uuid import UUID

from barnabas_broker.handlers.handler_environment import visible_brokers
from barnabas_broker.metadata.model import BrokerRegistration


def broker(number: int, *, fenced: bool) -> BrokerRegistration:
    return BrokerRegistration(number, UUID(int=number), (), fenced=fenced)


def test_clients_see_the_live_brokers() -> None:
    alive, dead = broker(1, fenced=False), broker(2, fenced=True)
    assert visible_brokers([alive, dead]) == [alive]


def test_clients_see_all_brokers_if_none_is_alive() -> None:
    every = [broker(1, fenced=True), broker(2, fenced=True)]
    assert visible_brokers(every) == every


def test_clients_that_request_fenced_brokers_see_all_brokers() -> None:
    every = [broker(1, fenced=False), broker(2, fenced=True)]
    assert visible_brokers(every, with_fenced=True) == every
