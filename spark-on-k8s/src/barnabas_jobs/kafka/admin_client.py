"""The admin clients: librdkafka's, and kafka-python's for requests that librdkafka lacks or answers only in part."""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError as KafkaPythonError

from barnabas_jobs.credentials import for_kafka_python, for_librdkafka
from barnabas_jobs.planning.errors import JobFailed

TIMEOUT_S: Final = 30.0
TIMEOUT_MS: Final = 30_000
IN_FLIGHT: Final = 50
"""The largest number of requests in flight if each is about one group or one time."""
SETTINGS: Final = {
    "log_level": 0,
    "socket.connection.setup.timeout.ms": 5000,
    # The client looks for a new controller every 5 s, because librdkafka's default of five minutes is too long.
    "topic.metadata.refresh.interval.ms": 5000,
}
NO_LEADER: Final = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,  # The broker has not yet learned that it leads the partition.
)
OF_MEMBERS: Final = (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION)
NOT_SHOWN: Final = (
    KafkaError.GROUP_ID_NOT_FOUND,  # The answer for a share group.
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.INVALID_GROUP_ID,
)

Answer = TypeVar("Answer")
Sent = TypeVar("Sent")


class TopicMissing(JobFailed):
    """A topic that does not exist in the cluster."""


class LeaderMissing(JobFailed):
    """A partition that has no leader, or whose leader in the metadata does not lead it, as during an election."""


class MembersOnly(JobFailed):
    """A group in which only members may commit."""


class OffsetsHidden(JobFailed):
    """A group whose committed offsets brokers do not show."""


class Asking:
    """A client of one cluster. All requests raise JobFailed if no broker answers in time, or one returns an error."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap, **SETTINGS, **for_librdkafka()})

    def _topics(self, timeout_s: float = TIMEOUT_S) -> Any:
        """Return the metadata of all topics by name."""
        try:
            return self._admin.list_topics(timeout=timeout_s).topics
        except KafkaException as error:
            raise self._failed(error, "listing topics") from error

    def _answer(self, future: "Future[Answer]", about: str) -> Answer:
        try:
            return future.result(TIMEOUT_S)
        except KafkaException as error:
            raise self._failed(error, about) from error
        except TimeoutError as error:
            raise JobFailed(f"bootstrap={self.bootstrap}: no broker answered within {TIMEOUT_S:.0f} s") from error

    def _failed(self, error: KafkaException, about: str) -> JobFailed:
        reason: KafkaError = error.args[0]
        if reason.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return TopicMissing(f"{about}: the cluster at {self.bootstrap} has no such topic")
        if reason.code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
            return JobFailed(f"bootstrap={self.bootstrap}: no broker answered: {reason.str()}")
        kinds = {
            **dict.fromkeys(NO_LEADER, LeaderMissing),
            **dict.fromkeys(OF_MEMBERS, MembersOnly),
            **dict.fromkeys(NOT_SHOWN, OffsetsHidden),
        }
        kind = kinds.get(reason.code(), JobFailed)
        return kind(f"{about}: the cluster at {self.bootstrap} answered: {reason.str()}")


def few_in_flight(sent: Iterable[Sent]) -> Iterator[Sent]:
    """Yield the requests that an iterator sends, which is at most IN_FLIGHT requests ahead of the caller."""
    waiting: deque[Sent] = deque()
    for each in sent:
        waiting.append(each)
        if len(waiting) == IN_FLIGHT:
            yield waiting.popleft()
    yield from waiting


@contextmanager
def admin_client(bootstrap: str, complaint: str, timeout_ms: int = TIMEOUT_MS) -> Iterator[Any]:
    """Yield kafka-python's client. Raises JobFailed with the text `complaint` if brokers do not answer or refuse."""
    try:
        admin: Any = KafkaAdminClient(
            bootstrap_servers=bootstrap.split(","),
            client_id="barnabas-jobs",
            bootstrap_timeout_ms=timeout_ms,
            request_timeout_ms=timeout_ms,
            **for_kafka_python(),
        )
        try:
            yield admin
        finally:
            admin.close()
    except KafkaPythonError as error:
        raise JobFailed(f"bootstrap={bootstrap}: {complaint}: {error}") from error
