"""Clients are told of brokers that are alive, and never of none at all."""

from uuid import UUID

from barnabas_broker.handlers.handler_environment import visible_brokers
from barnabas_broker.metadata.model import BrokerRegistration


def broker(number: int, *, fenced: bool) -> BrokerRegistration:
    return BrokerRegistration(number, UUID(int=number), (), fenced=fenced)


def test_clients_are_told_of_the_brokers_that_are_alive() -> None:
    alive, dead = broker(1, fenced=False), broker(2, fenced=True)
    assert visible_brokers([alive, dead]) == [alive]


def test_clients_are_told_of_all_brokers_where_none_is_alive() -> None:
    every = [broker(1, fenced=True), broker(2, fenced=True)]
    assert visible_brokers(every) == every


def test_who_asks_for_fenced_brokers_is_told_of_all() -> None:
    every = [broker(1, fenced=False), broker(2, fenced=True)]
    assert visible_brokers(every, with_fenced=True) == every
