"""The few things that fault tests do with librdkafka: write to a partition, read it, and see errors."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from harness.deadline import PATIENCE_S, wait_for

# Meets a broker again soon after it is back, and does not print that it was away. A reader whose broker dies before
# it tells the metadata that a join needs does not ask again, but with the next refresh: librdkafka 2.16 stays in
# `wait-metadata` till then, for five minutes by default.
RECONNECTS = {
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "topic.metadata.refresh.interval.ms": 10_000,
    "log_level": 0,
}


class StockClient:
    """A client with one bootstrap address, and other settings where it has to log in. Every call has a deadline."""

    def __init__(self, bootstrap: str, settings: Mapping[str, Any] = {}) -> None:
        self.settings: dict[str, Any] = {**settings, "bootstrap.servers": bootstrap, **RECONNECTS}
        self.admin = AdminClient(self.settings)

    def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
        *,
        replication_factor: int = -1,
        assignment: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """Make a topic, with its replicas placed by the brokers or by the assignment: ids for each partition."""
        placing = {"replica_assignment": assignment} if assignment else {"replication_factor": replication_factor}
        new = NewTopic(topic, num_partitions=partitions, config=dict(config or {}), **placing)
        self.admin.create_topics([new])[topic].result(PATIENCE_S)

    def create_topic_in(self, topic: str, **configs: str) -> None:
        self.create_topic(topic, 1, {name.replace("_", "."): value for name, value in configs.items()})

    def send(
        self, topic: str, values: Sequence[bytes], partition: int = 0, *, timeout_ms: int = 30_000, **settings: object
    ) -> list[KafkaError | None]:
        """Write; return the error of each value or None.

        An error that may be retried shows as a timeout, unless `retries=0`.
        """
        outcomes: list[KafkaError | None] = [None] * len(values)
        chosen = {"acks": "all", "message.timeout.ms": timeout_ms, "linger.ms": 1, **settings}
        producer = Producer({**self.settings, **{name.replace("_", "."): value for name, value in chosen.items()}})

        def note(number: int) -> Callable[[KafkaError | None, object], None]:
            return lambda error, _: outcomes.__setitem__(number, error)

        for number, value in enumerate(values):
            producer.produce(topic, value, partition=partition, on_delivery=note(number))
            producer.poll(0)
        assert producer.flush(timeout_ms / 1000 + 60) == 0
        return outcomes

    def write(self, topic: str, values: Sequence[bytes], partition: int = 0, *, patience_s: float = PATIENCE_S) -> None:
        """Write all values; each is acknowledged within this time."""
        for error in filter(None, self.send(topic, values, partition, timeout_ms=int(patience_s * 1000))):
            raise KafkaException(error)

    def error_of_write(self, topic: str, value: bytes = b"refused?", partition: int = 0) -> int:
        """Try to write once; return the error code, 0 if it was accepted."""
        (error,) = self.send(topic, [value], partition, timeout_ms=60_000, retries=0)
        return 0 if error is None else error.code()

    def ends(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """Return the first offset and the next one."""
        consumer = self.consumer()
        try:
            return _ends(consumer, topic, partition)
        finally:
            consumer.close()

    def consumer(self, group: str = "nobody", **settings: object) -> Consumer:
        defaults = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        chosen = {name.replace("_", "."): value for name, value in settings.items()}
        return Consumer({**self.settings, **defaults, "fetch.wait.max.ms": 50, **chosen})

    def commit(self, group: str, *places: TopicPartition) -> None:
        """Commit without being a member.

        The caller retries while the coordinator loads, because librdkafka does not.
        """
        consumer = self.consumer(group)
        try:
            wait_for(lambda: _error_of_commit(consumer, places), lambda code: code == 0)
        finally:
            consumer.close()

    def read(self, topic: str, partition: int = 0, start: int | None = None) -> list[bytes]:
        """Return all values from `start`, or from the beginning, to the present end."""
        consumer = self.consumer(enable_partition_eof=True)
        try:
            first, end = _ends(consumer, topic, partition)
            consumer.assign([TopicPartition(topic, partition, first if start is None else start)])
            values: list[bytes] = []
            deadline = time.monotonic() + PATIENCE_S
            while True:
                assert time.monotonic() < deadline, f"{topic}-{partition}: {len(values)} records; it ends at {end}"
                for message in consumer.consume(1000, 0.05):
                    error = message.error()
                    if error is None:
                        values.append(message.value())  # type: ignore[arg-type]  # Tests with tombstones know.
                    elif error.code() == KafkaError._PARTITION_EOF:
                        return values
                    else:
                        raise KafkaException(error)
        finally:
            consumer.close()


def _error_of_commit(consumer: Consumer, places: Sequence[TopicPartition]) -> int:
    try:
        kept = consumer.commit(offsets=list(places), asynchronous=False) or ()
    except KafkaException as error:
        return int(error.args[0].code())
    return next((int(place.error.code()) for place in kept if place.error is not None), 0)


def records_given(consumer: Consumer, seconds_max: float, records_max: int = 500) -> list[Message]:
    """Return the messages, errors included, that a member of a group gets now; wait only for the first one.

    It asks for one message at a time: in librdkafka 2.0 `consume` of several loses records beside a rebalance.
    """
    given: list[Message] = []
    message = consumer.poll(seconds_max)
    while message is not None:
        given.append(message)
        message = consumer.poll(0) if len(given) < records_max else None
    return given


def _ends(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    """Return the first and the next offset from the leader.

    After an error librdkafka looks for another leader, but leaves the retry to the caller.
    """

    def ask() -> tuple[int, int] | None:
        try:
            return consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=PATIENCE_S)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.NOT_LEADER_FOR_PARTITION:
                return None
            raise

    found = wait_for(ask)
    assert found is not None
    return found
