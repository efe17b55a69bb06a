"""Requests to many brokers at once. What one broker does not answer costs nothing of what the others do."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, NamedTuple

from kafka.errors import KafkaError

from barnabas_kafka.connection import reachable

Request = Any
Answer = Any


class Failure(NamedTuple):
    """Something that was asked in vain: the request's name, who was asked, and what came of it."""

    request: str
    broker_id: int
    reason: str

    def __str__(self) -> str:
        return f"{self.request} to broker {self.broker_id}: {self.reason}"


@dataclass(slots=True)
class Asking:
    """The requests of one round by a connected client; `failures` gather over the round."""

    client: Any
    failures: list[Failure] = field(default_factory=list)
    _silent: set[int] = field(default_factory=set)

    def ask_any(self, request: Request) -> Answer:
        """Any broker. Raises ClusterUnreachable."""
        with reachable():
            return self._manager.run(self._manager.send, request)

    def ask(self, requests: Mapping[int, Sequence[Request]]) -> Iterator[tuple[int, Request, Answer]]:
        """Each broker its requests one after the other, all brokers at once; what was answered.

        A broker that has not answered is not asked again in this round: each time it would take the whole time-out.
        """
        brokers = list(requests)
        for wave in zip_longest(*requests.values()):
            sent = [pair for pair in zip(brokers, wave, strict=True) if pair[1] is not None]
            asked = [pair for pair in sent if pair[0] not in self._silent]
            with reachable():
                outcomes = self._manager.run(self._together, asked)
            for (broker_id, request), outcome in zip(asked, outcomes, strict=True):
                if isinstance(outcome, KafkaError):
                    self._silent.add(broker_id)
                    self.failed(request, broker_id, outcome)
                else:
                    yield broker_id, request, outcome

    def failed(self, request: Request, broker_id: int, reason: object) -> None:
        """Notes it."""
        name = type(request).__name__.removesuffix("Request")
        self.failures.append(Failure(name, broker_id, str(reason) or type(reason).__name__))

    def meet(self, broker_ids: Sequence[int]) -> None:
        """The client asks nothing of brokers that joined after it looked last. Raises ClusterUnreachable."""
        if any(self._manager.cluster.broker_metadata(broker_id) is None for broker_id in broker_ids):
            with reachable():
                self._manager.run(self._manager.cluster.refresh_metadata)

    def supports(self, request: type, version: int) -> bool:
        """Whether the cluster knows this version of a request."""
        return int(self._manager.broker_version_data.api_version(request)) >= version

    @property
    def _manager(self) -> Any:
        return self.client._manager

    async def _together(self, asked: Sequence[tuple[int, Request]]) -> list[Answer | KafkaError]:
        """In the client's thread: all are sent before the first is waited for."""
        futures = [self._send(broker_id, request) for broker_id, request in asked]
        return [await _outcome(future) for future in futures]

    def _send(self, broker_id: int, request: Request) -> Any:
        try:
            return self._manager.send(request, node_id=broker_id)
        except KafkaError as error:  # It knows no such broker, or was refused by it.
            return error


async def _outcome(future: Any) -> Answer | KafkaError:
    if isinstance(future, KafkaError):
        return future
    try:
        return await future
    except KafkaError as error:
        return error
