"""Send requests to many brokers at once; a broker that does not respond does not affect the others."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Final, NamedTuple

from kafka.errors import IncompatibleBrokerVersion, KafkaError, for_code

from barnabas_core.errors import ErrorCode
from barnabas_kafka.connection import ClusterUnreachable, reachable

Request = Any
Answer = Any

TRIES: Final = 3
"""The number of tries of a request that any broker can answer; each try may take the whole timeout."""


class Failure(NamedTuple):
    """A failed request: its name, the broker to which it was sent, and the reason."""

    request: str
    broker_id: int
    reason: str

    def __str__(self) -> str:
        return f"the request {self.request} to broker {self.broker_id} failed: {self.reason}"


@dataclass(slots=True)
class Asking:
    """One round of requests by a connected client; `failures` lists the failed requests of the round."""

    client: Any
    failures: list[Failure] = field(default_factory=list)
    _silent: set[int] = field(default_factory=set)

    def ask_any(self, request: Request) -> Answer:
        """Send the request to any broker, and to other brokers if that broker does not respond.

        Raise ClusterUnreachable if TRIES brokers, or all known brokers, fail to respond.
        """
        for _ in range(TRIES):
            with reachable():
                broker_id, outcome = self.client.connections.run(self._any, request)
            if not isinstance(outcome, KafkaError):
                return outcome
            self._silent.add(broker_id)
            self.failed(request, broker_id, outcome)
        raise ClusterUnreachable(str(self.failures[-1]))

    def ask(self, requests: Mapping[int, Sequence[Request]]) -> Iterator[tuple[int, Request, Answer]]:
        """Send each broker its requests one after the other, all brokers in parallel; yield the responses.

        If a request fails, the failure is recorded, and its broker gets no further request in this round of
        requests, because each one could take the whole timeout.
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
        """Record that a broker did not respond, or refused the request."""
        name = type(request).__name__.removesuffix("Request")
        self.failures.append(Failure(name, broker_id, str(reason) or type(reason).__name__))

    def refused(self, request: Request, broker_id: int, parts: Iterable[tuple[int, str]]) -> None:
        """Record a failure for each error code in a response, with the first group or partition affected."""
        names: dict[int, list[str]] = {}
        for code, name in parts:
            if code != ErrorCode.NONE:
                names.setdefault(code, []).append(name)
        for code, of_code in names.items():
            others = f" and {len(of_code) - 1} more" if len(of_code) > 1 else ""
            self.failed(request, broker_id, f"{for_code(code).__name__} for {of_code[0]}{others}")

    def meet(self, broker_ids: Sequence[int]) -> None:
        """Refresh the client's metadata if it lacks one of the brokers, because requests need the broker's address.

        Raise ClusterUnreachable if the refresh fails.
        """
        with reachable():
            self.client.meet(broker_ids)

    def supports(self, request: type, version: int) -> bool:
        """True if the cluster supports this version of a request, or a later one."""
        try:
            return int(self.client.connections.broker_version_data.api_version(request)) >= version
        except IncompatibleBrokerVersion:
            return False

    async def _any(self, request: Request) -> tuple[int, Answer | KafkaError]:
        """Send the request to a broker that has not failed in this round of requests.

        Return the id of the broker, and its response or the error. Raise ClusterUnreachable if all known brokers have
        failed.
        """
        likely = self.client.connections.least_loaded_node()
        known = [likely, *(each.node_id for each in self.client.connections.cluster.brokers())]
        broker_id = next((each for each in known if each is not None and each not in self._silent), None)
        if broker_id is None:
            raise ClusterUnreachable("; ".join(map(str, self.failures)))
        return broker_id, await _outcome(self._send(broker_id, request))

    async def _together(self, asked: Sequence[tuple[int, Request]]) -> list[Answer | KafkaError]:
        """Send all requests before waiting for the first response; this coroutine runs in the client's thread."""
        futures = [self._send(broker_id, request) for broker_id, request in asked]
        return [await _outcome(future) for future in futures]

    def _send(self, broker_id: int, request: Request) -> Any:
        try:
            return self.client.connections.send(request, node_id=broker_id)
        except KafkaError as error:  # The client does not know the broker, or cannot send the request.
            return error


async def _outcome(future: Any) -> Answer | KafkaError:
    if isinstance(future, KafkaError):
        return future
    try:
        return await future
    except KafkaError as error:
        return error
