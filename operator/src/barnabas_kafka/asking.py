"""Send requests to many brokers at once; a broker that does not respond does not affect the others."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from typing import Any, Final, NamedTuple, TypeVar

from kafka.errors import IncompatibleBrokerVersion, KafkaError, for_code
from kafka.protocol.admin import DescribeGroupsRequest
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import ListOffsetsRequest, OffsetFetchRequest

from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import TopicPartition
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


Item = TypeVar("Item")

GROUPS_A_REQUEST: Final = 100
PARTITIONS_A_REQUEST: Final = 2_000
MANY_GROUPS_VERSION: Final = 8
"""The first version of OffsetFetch for many groups (KIP-709); later versions are not used, because version 10 replaces
topic names by topic ids."""
OFFSET_VERSION: Final = 1
"""The lowest usable version of ListOffsets, because version 0 returns lists of offsets."""


ISOLATION_VERSION: Final = 2
"""The first version of ListOffsets with an isolation level."""


def describe_groups(group_ids: Iterable[str]) -> list[Any]:
    """Return the requests that describe the groups and their members."""
    return [DescribeGroupsRequest(groups=list(some)) for some in batches(group_ids, GROUPS_A_REQUEST)]


def fetch_offsets(group_ids: Iterable[str], *, many: bool) -> list[Any]:
    """Return the requests for all committed offsets of groups.

    A request is for one group, or for up to GROUPS_A_REQUEST groups if `many` is True.
    """
    if many:
        of_group = OffsetFetchRequest.OffsetFetchRequestGroup
        return [
            OffsetFetchRequest(
                groups=[of_group(group_id=each, topics=None) for each in some],
                min_version=MANY_GROUPS_VERSION,
                max_version=MANY_GROUPS_VERSION,
            )
            for some in batches(group_ids, GROUPS_A_REQUEST)
        ]
    return [
        OffsetFetchRequest(group_id=each, topics=None, min_version=2, max_version=MANY_GROUPS_VERSION - 1)
        for each in group_ids
    ]


def list_offsets(timestamps_ms: Mapping[TopicPartition, int], *, committed: bool = False) -> list[Any]:
    """Return the ListOffsets requests for partitions, each with a timestamp or the code of the start or end offset.

    With `committed`, the end is the last stable offset (read_committed).
    """
    of_topic = ListOffsetsRequest.ListOffsetsTopic
    of_partition = of_topic.ListOffsetsPartition
    requests = []
    for some in batches(timestamps_ms.items(), PARTITIONS_A_REQUEST):
        topics: dict[str, list[Any]] = {}
        for (topic, number), timestamp_ms in some:
            topics.setdefault(topic, []).append(of_partition(partition_index=number, timestamp=timestamp_ms))
        asked = [of_topic(name=name, partitions=parts) for name, parts in topics.items()]
        version = ISOLATION_VERSION if committed else OFFSET_VERSION
        requests.append(ListOffsetsRequest(isolation_level=int(committed), topics=asked, min_version=version))
    return requests


def batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield the items in order, in lists of at most `size`."""
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some


CONSUMER: Final = "consumer"
"""The type of a group of the consumer protocol, in ListGroups."""


class ConsumerGroupDescribeRequest(ApiMessage, load_json="barnabas_core.definitions"):
    """The request for groups of the consumer protocol and their members."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json="barnabas_core.definitions"):
    """The response to that request."""


def describe_consumer_groups(group_ids: Iterable[str]) -> list[Any]:
    """Return the requests that describe groups of the consumer protocol and their members."""
    request: Any = ConsumerGroupDescribeRequest
    return [
        request(group_ids=some, include_authorized_operations=False) for some in batches(group_ids, GROUPS_A_REQUEST)
    ]


def owned(member: Any) -> tuple[TopicPartition, ...]:
    """Return the partitions of a member in the response, with those that it is about to give up."""
    return tuple(
        TopicPartition(topic.topic_name, number)
        for topic in member.assignment.topic_partitions
        for number in topic.partitions
    )


LATEST: Final = -1
EARLIEST: Final = -2
NO_OFFSET: Final = -1
NOBODY: Final = -1
"""The broker id if there is no broker, for example if a partition has no leader."""


class LogOffset(NamedTuple):
    """An offset, and the timestamp of its record in ms, if the record has one."""

    offset: int
    timestamp_ms: int


def log_offsets(
    asking: Asking,
    leader_of: Callable[[TopicPartition], int],
    timestamps_ms: Mapping[TopicPartition, int],
    *,
    committed: bool = False,
) -> dict[TopicPartition, LogOffset]:
    """Return for each partition the offset of the first record at or after its timestamp; NO_OFFSET if there is none.

    The timestamp EARLIEST stands for the log start offset, and LATEST for the log end offset. If `committed` is true,
    LATEST stands for the last stable offset, below which no transaction is open. The result lacks partitions without a
    leader, and partitions whose leader does not respond or responds with an error. Failures are recorded in `asking`.
    """
    known = {each: each for each in timestamps_ms}
    found: dict[TopicPartition, LogOffset] = {}
    requests = by_broker(timestamps_ms, leader_of)
    batched = {
        leader: list_offsets({each: timestamps_ms[each] for each in some}, committed=committed)
        for leader, some in requests.items()
    }
    for broker_id, request, answer in asking.ask(batched):
        parts = [
            (TopicPartition(topic.name, part.partition_index), part)
            for topic in answer.topics
            for part in topic.partitions
        ]
        for partition, part in parts:
            if part.error_code == ErrorCode.NONE:
                found[known[partition]] = LogOffset(part.offset, part.timestamp)
        asking.refused(request, broker_id, ((part.error_code, str(each)) for each, part in parts))
    return found


def by_broker(items: Iterable[Item], broker_of: Callable[[Item], int]) -> dict[int, list[Item]]:
    """Group items, such as partitions, by the broker that `broker_of` returns; items without a broker are left out."""
    found: dict[int, list[Item]] = {}
    for item in items:
        if (broker_id := broker_of(item)) != NOBODY:
            found.setdefault(broker_id, []).append(item)
    return found


SHARE: Final = "share"
"""The type of a share group, in ListGroups."""
SHARE_VERSION: Final = 1
"""The first version of ShareGroupDescribe that clusters have."""
UNKNOWN: Final = -1
"""The start offset or the lag that the coordinator does not know."""


class ShareGroupDescribeRequest(ApiMessage, load_json="barnabas_core.definitions"):
    """The request for share groups and their members."""


class ShareGroupDescribeResponse(ApiMessage, load_json="barnabas_core.definitions"):
    """The response to that request."""


class DescribeShareGroupOffsetsRequest(ApiMessage, load_json="barnabas_core.definitions"):
    """The request for the start offsets and the lag of share groups."""


class DescribeShareGroupOffsetsResponse(ApiMessage, load_json="barnabas_core.definitions"):
    """The response to that request."""


class AlterShareGroupOffsetsRequest(ApiMessage, load_json="barnabas_core.definitions"):
    """The request that sets start offsets of a share group."""


class AlterShareGroupOffsetsResponse(ApiMessage, load_json="barnabas_core.definitions"):
    """The response to that request."""


class DeleteShareGroupOffsetsRequest(ApiMessage, load_json="barnabas_core.definitions"):
    """The request that deletes start offsets of a share group."""


class DeleteShareGroupOffsetsResponse(ApiMessage, load_json="barnabas_core.definitions"):
    """The response to that request."""


def describe_share_groups(group_ids: Iterable[str]) -> list[Any]:
    """Return the requests that describe share groups and their members."""
    request: Any = ShareGroupDescribeRequest
    return [
        request(group_ids=some, include_authorized_operations=False) for some in batches(group_ids, GROUPS_A_REQUEST)
    ]


def describe_share_offsets(group_ids: Iterable[str]) -> list[Any]:
    """Return the requests for the start offsets and the lag of share groups in all their partitions."""
    request: Any = DescribeShareGroupOffsetsRequest
    of_group = request.DescribeShareGroupOffsetsRequestGroup
    return [
        request(groups=[of_group(group_id=each, topics=None) for each in some])
        for some in batches(group_ids, GROUPS_A_REQUEST)
    ]


def known_lag(partition: Any) -> int | None:
    """Return the lag in a response to such a request, or None if the coordinator does not know it."""
    return None if partition.lag == UNKNOWN else int(partition.lag)


def alter_share_offsets(group_id: str, offsets: Mapping[TopicPartition, int]) -> Any:
    """Return the request that sets start offsets of a share group without members."""
    request: Any = AlterShareGroupOffsetsRequest
    of_topic = request.AlterShareGroupOffsetsRequestTopic
    of_partition = of_topic.AlterShareGroupOffsetsRequestPartition
    topics: dict[str, list[Any]] = {}
    for each in sorted(offsets):
        part = of_partition(partition_index=each.partition, start_offset=offsets[each])
        topics.setdefault(each.topic, []).append(part)
    return request(
        group_id=group_id, topics=[of_topic(topic_name=name, partitions=parts) for name, parts in topics.items()]
    )


def delete_share_offsets(group_id: str, topics: Iterable[str]) -> Any:
    """Return the request that deletes the start offsets of a share group in these topics."""
    request: Any = DeleteShareGroupOffsetsRequest
    of_topic = request.DeleteShareGroupOffsetsRequestTopic
    return request(group_id=group_id, topics=[of_topic(topic_name=name) for name in sorted(topics)])
