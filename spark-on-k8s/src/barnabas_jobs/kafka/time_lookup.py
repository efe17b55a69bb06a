"""ListOffsets for many partitions at once: the bounds of logs, and the first record at or after a time."""

from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as Asked
from confluent_kafka.admin import AdminClient, OffsetSpec

from barnabas_core.topic_partition import TopicPartition
from barnabas_jobs.credentials import for_librdkafka
from barnabas_jobs.kafka.topics import ASKING
from barnabas_jobs.planning.errors import JobFailed
from barnabas_jobs.planning.lag import Ends

TIMEOUT_S: Final = 30.0
IN_FLIGHT: Final = 50
"""The largest number of ListOffsets requests in flight.

A request can have only one timestamp for each partition, so several timestamps of a partition need several requests.
"""


class TimeLookup:
    """Offset lookups in one cluster; they raise JobFailed if no broker answers in time, or one returns an error."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, **ASKING, **for_librdkafka()})

    def ends(self, wanted: Collection[TopicPartition]) -> dict[TopicPartition, Ends]:
        """Return the start and end of the log of each wanted partition that exists."""
        topics = self._topics()
        there = [each for each in wanted if each.topic in topics and each.partition in topics[each.topic].partitions]
        first, last = (self._ask(dict.fromkeys(there, spec)) for spec in (OffsetSpec.earliest(), OffsetSpec.latest()))
        return {each: Ends(first[each], last[each]) for each in there}

    def first_since(self, questions: Sequence[tuple[TopicPartition, int]]) -> list[int | None]:
        """Return for each partition and time (ms) the offset of the first record at or after the time, or None."""
        turns: Counter[TopicPartition] = Counter()
        requests: dict[int, dict[TopicPartition, tuple[int, Any]]] = {}
        for number, (at, time_ms) in enumerate(questions):
            requests.setdefault(turns[at], {})[at] = (number, OffsetSpec.for_timestamp(time_ms))
            turns[at] += 1
        found: list[int | None] = [None] * len(questions)
        waiting: deque[tuple[dict[TopicPartition, tuple[int, Any]], Any]] = deque()
        for request in requests.values():
            waiting.append((request, self._sent({at: spec for at, (_, spec) in request.items()})))
            if len(waiting) == IN_FLIGHT:
                self._take(waiting, found)
        while waiting:
            self._take(waiting, found)
        return found

    def _take(self, waiting: Any, found: list[int | None]) -> None:
        request, sent = waiting.popleft()
        for at, offset in self._answers(sent).items():
            found[request[at][0]] = offset if offset >= 0 else None

    def _ask(self, wanted: Mapping[TopicPartition, Any]) -> dict[TopicPartition, int]:
        return self._answers(self._sent(wanted)) if wanted else {}

    def _sent(self, wanted: Mapping[TopicPartition, Any]) -> Any:
        asked = {Asked(*at): spec for at, spec in wanted.items()}
        return self._admin.list_offsets(asked, request_timeout=TIMEOUT_S)

    def _answers(self, sent: Any) -> dict[TopicPartition, int]:
        found = {}
        for at, future in sent.items():
            try:
                found[TopicPartition(at.topic, at.partition)] = future.result(TIMEOUT_S).offset
            except KafkaException as error:
                code = error.args[0].str()
                raise JobFailed(f"{at.topic}-{at.partition}: the leader did not report offsets: {code}") from error
            except TimeoutError as error:
                raise self._silent() from error
        return found

    def _topics(self) -> Any:
        try:
            return self._admin.list_topics(timeout=TIMEOUT_S).topics
        except KafkaException as error:
            raise self._silent() from error

    def _silent(self) -> JobFailed:
        return JobFailed(f"bootstrap={self._bootstrap}: no broker answered within {TIMEOUT_S:.0f} s")
