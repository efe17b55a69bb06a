"""The requests to many brokers at once; a broker that does not answer costs no answer of the others."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Final, NamedTuple

from kafka.errors import KafkaError, for_code

from barnabas_core.errors import ErrorCode
from barnabas_kafka.connection import ClusterUnreachable, reachable

Request = Any
Answer = Any

TRIES: Final = 3
"""The number of tries of a request that any broker can answer; each may take the whole time-out."""


class Failure(NamedTuple):
    """A failed request: its name, the broker that was asked, and the reason."""

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
        """Send the request to any broker; if it does not answer, to others. Raises ClusterUnreachable."""
        for _ in range(TRIES):
            with reachable():
                broker_id, outcome = self.client.connections.run(self._any, request)
            if not isinstance(outcome, KafkaError):
                return outcome
            self._silent.add(broker_id)
            self.failed(request, broker_id, outcome)
        raise ClusterUnreachable(str(self.failures[-1]))

    def ask(self, requests: Mapping[int, Sequence[Request]]) -> Iterator[tuple[int, Request, Answer]]:
        """Send each broker its requests one after the other, all brokers at once; yield the answers.

        A broker that has not answered is not asked again in this round: each time it would take the whole time-out.
        """
        brokers = list(requests)
        for wave in zip_longest(*requests.values()):
            sent = [pair for pair in zip(brokers, wave, strict=True) if pair[1] is not None]
            asked = [pair for pair in sent if pair[0] not in self._silent]
            with reachable():
                outcomes = self.client.connections.run(self._together, asked)
            for (broker_id, request), outcome in zip(asked, outcomes, strict=True):
                if isinstance(outcome, KafkaError):
                    self._silent.add(broker_id)
                    self.failed(request, broker_id, outcome)
                else:
                    yield broker_id, request, outcome

    def failed(self, request: Request, broker_id: int, reason: object) -> None:
        """Note that a broker did not answer or refused the request."""
        name = type(request).__name__.removesuffix("Request")
        self.failures.append(Failure(name, broker_id, str(reason) or type(reason).__name__))

    def refused(self, request: Request, broker_id: int, parts: Iterable[tuple[int, str]]) -> None:
        """Note each error code of an answer's parts once, with the first part's name and the number of others."""
        names: dict[int, list[str]] = {}
        for code, name in parts:
            if code != ErrorCode.NONE:
                names.setdefault(code, []).append(name)
        for code, of_code in names.items():
            others = f" and {len(of_code) - 1} more" if len(of_code) > 1 else ""
            self.failed(request, broker_id, f"{for_code(code).__name__} for {of_code[0]}{others}")

    def meet(self, broker_ids: Sequence[int]) -> None:
        """The client asks nothing of brokers that joined after it looked last. Raises ClusterUnreachable."""
        with reachable():
            self.client.meet(broker_ids)

    def supports(self, request: type, version: int) -> bool:
        """True if the cluster supports this version of a request."""
        return int(self.client.connections.broker_version_data.api_version(request)) >= version

    async def _any(self, request: Request) -> tuple[int, Answer | KafkaError]:
        """Return the broker that was asked, and its answer or error. Raises ClusterUnreachable if no broker is left."""
        likely = self.client.connections.least_loaded_node()
        known = [likely, *(each.node_id for each in self.client.connections.cluster.brokers())]
        broker_id = next((each for each in known if each is not None and each not in self._silent), None)
        if broker_id is None:
            raise ClusterUnreachable("; ".join(map(str, self.failures)))
        return broker_id, await _outcome(self._send(broker_id, request))

    async def _together(self, asked: Sequence[tuple[int, Request]]) -> list[Answer | KafkaError]:
        """Send all requests before waiting for the first answer; runs in the client's thread."""
        futures = [self._send(broker_id, request) for broker_id, request in asked]
        return [await _outcome(future) for future in futures]

    def _send(self, broker_id: int, request: Request) -> Any:
        try:
            return self.client.connections.send(request, node_id=broker_id)
        except KafkaError as error:  # The broker is unknown, or has refused the request.
            return error


async def _outcome(future: Any) -> Answer | KafkaError:
    if isinstance(future, KafkaError):
        return future
    try:
        return await future
    except KafkaError as error:
        return error
