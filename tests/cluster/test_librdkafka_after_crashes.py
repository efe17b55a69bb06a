"""Brokers are killed under librdkafka: no transactional loop hangs, and a producer continues at once.

librdkafka 2.16 waits forever for a group coordinator that has left Metadata. Apache Kafka is measured beside.
"""

import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from statistics import median

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from bench.clients.pulse import LibrdkafkaPulse
from harness.cluster import RunningCluster, prepare_cluster
from harness.deadline import PATIENCE_S, wait_for
from harness.kafka_cluster import prepare_kafka_cluster
from harness.soak import took

BROKERS = 3
LOOPS = 6
KILLS = 40
AWAY_S = 4.0
ROUNDS = 10
STALL_SECONDS_MAX = 0.3
CALL_SECONDS = 30
MORE = 3
PROPERTIES = {"min.insync.replicas": "2", "transaction.state.log.min.isr": "2"}


class Loop:
    """A thread that sends a record and an offset in each transaction, forever."""

    def __init__(self, bootstrap: str, number: int, ending: threading.Event) -> None:
        self.done = 0
        self._settings = {"bootstrap.servers": bootstrap, "log_level": 0}
        self._number = number
        self._ending = ending
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        group = Consumer({**self._settings, "group.id": f"group-{self._number}"}).consumer_group_metadata()
        producer: Producer | None = None
        while not self._ending.wait(0.01):
            try:
                producer = producer or self._new_producer()
                self._transaction(producer, group)
            except KafkaException as error:
                producer = None if error.args[0].fatal() or producer is None else self._aborted(producer)

    def _new_producer(self) -> Producer:
        producer = Producer({**self._settings, "transactional.id": f"loop-{self._number}"})
        producer.init_transactions(CALL_SECONDS)
        return producer

    def _transaction(self, producer: Producer, group: object) -> None:
        producer.begin_transaction()
        producer.produce("out", b"x", partition=self.done % BROKERS)
        producer.send_offsets_to_transaction([TopicPartition("in", 0, self.done)], group, CALL_SECONDS)
        producer.commit_transaction(CALL_SECONDS)
        self.done += 1

    def _aborted(self, producer: Producer) -> Producer | None:
        """Return the producer, or None if its transaction cannot be aborted."""
        try:
            producer.abort_transaction(CALL_SECONDS)
        except KafkaException:
            return None
        return producer


def continued(loops: Sequence[Loop]) -> None:
    """Wait until each loop has committed a few more transactions."""
    wanted = [loop.done + MORE for loop in loops]
    wait_for(lambda: [loop.done for loop in loops], lambda done: all(map(int.__ge__, done, wanted)), PATIENCE_S * 2)


@pytest.mark.slow
@pytest.mark.soak(only=True)
@pytest.mark.timeout(3600)
def test_no_loop_of_offsets_in_transactions_hangs_while_brokers_are_killed(tmp_path: Path) -> None:
    ending = threading.Event()
    with closing(prepare_cluster(tmp_path, BROKERS, PROPERTIES)) as cluster:
        cluster.start()
        cluster.create_topic("in", 1, BROKERS)
        cluster.create_topic("out", BROKERS, BROKERS)
        loops = [Loop(cluster.bootstrap, number, ending) for number in range(LOOPS)]
        continued(loops)
        for number in range(KILLS):
            cluster.kill(number % BROKERS)
            time.sleep(AWAY_S)
            cluster.start(number % BROKERS)
            cluster.wait_until_full()
            continued(loops)
            print(f"kill {number + 1}: {sum(loop.done for loop in loops)} transactions", flush=True)
        ending.set()


@pytest.mark.slow
@pytest.mark.soak(only=True)
@pytest.mark.timeout(3600)
def test_a_producer_continues_at_once_after_its_leader_was_killed(tmp_path: Path) -> None:
    theirs = stalls(prepare_kafka_cluster(tmp_path / "apache-kafka", BROKERS, PROPERTIES, heap="512M"))
    ours = stalls(prepare_cluster(tmp_path / "barnabas", BROKERS, PROPERTIES))
    print(f"median stall of a producer: Barnabas {median(ours):.2f} s, Apache Kafka {median(theirs):.2f} s", flush=True)
    took("the median stall", median(ours), STALL_SECONDS_MAX)


def stalls(cluster: RunningCluster) -> list[float]:
    """Return the seconds for which a producer stood after each kill of the leader of its partition."""
    found = []
    with closing(cluster):
        cluster.start()
        for number in range(ROUNDS):
            victim, topic = number % BROKERS, f"topic-{number}"
            replicas = [victim, *(each for each in range(BROKERS) if each != victim)]
            cluster.create_topic(topic, 1, assignment=[replicas])
            with LibrdkafkaPulse(cluster.bootstrap, topic) as pulse:
                pulse.await_beats(time.monotonic() + 0.5, PATIENCE_S)
                gone_s = time.monotonic()
                cluster.kill(victim)
                pulse.await_beats(time.monotonic(), PATIENCE_S * 2)
                found.append(pulse.gap_ms(gone_s) / 1000)
            cluster.start(victim)
            cluster.wait_until_full()
            print(f"{type(cluster).__name__}: {found[-1]:.2f} s", flush=True)
    return found
