"""ListOffsets for many partitions at once: the bounds of logs, and the first record at or after a time."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from confluent_kafka import TopicPartition as Asked
from confluent_kafka.admin import OffsetSpec

from barnabas_core.topic_partition import TopicPartition
from barnabas_jobs.kafka.admin_client import TIMEOUT_S, Asking, few_in_flight
from barnabas_jobs.planning.lag import Ends


class TimeLookup(Asking):
    """Offset lookups in one cluster."""

    def ends(self, wanted: Collection[TopicPartition]) -> dict[TopicPartition, Ends]:
        """Return the start and end of the log of each wanted partition that exists."""
        topics = self._topics()
        there = [each for each in wanted if each.topic in topics and each.partition in topics[each.topic].partitions]
        sent = [self._sent(dict.fromkeys(there, spec)) for spec in (OffsetSpec.earliest(), OffsetSpec.latest())]
        first, last = map(self._offsets, sent)
        return {each: Ends(first[each], last[each]) for each in there}

    def first_since(self, questions: Sequence[tuple[TopicPartition, int]]) -> list[int | None]:
        """Return for each partition and time (ms) the offset of the first record at or after the time, or None."""
        # A request has one timestamp for each partition, so several timestamps of a partition need several requests.
        turns: Counter[TopicPartition] = Counter()
        requests: dict[int, dict[TopicPartition, int]] = {}
        for number, (at, _) in enumerate(questions):
            requests.setdefault(turns[at], {})[at] = number
            turns[at] += 1
        sent = (
            (request, self._sent({at: OffsetSpec.for_timestamp(questions[each][1]) for at, each in request.items()}))
            for request in requests.values()
        )
        found: list[int | None] = [None] * len(questions)
        for request, futures in few_in_flight(sent):
            for at, offset in self._offsets(futures).items():
                found[request[at]] = offset if offset >= 0 else None
        return found

    def _sent(self, wanted: Mapping[TopicPartition, Any]) -> Any:
        asked = {Asked(*at): spec for at, spec in wanted.items()}
        return self._admin.list_offsets(asked, request_timeout=TIMEOUT_S) if asked else {}

    def _offsets(self, sent: Any) -> dict[TopicPartition, int]:
        return {
            TopicPartition(at.topic, at.partition): self._answer(future, f"{at.topic}-{at.partition}").offset
            for at, future in sent.items()
        }
