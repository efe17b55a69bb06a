"""`make proof-restore`: executors are killed in the middle of a restore; the restored topic is equal each time.

Three real brokers, two executors on Spark's own cluster for tests. Each round kills one executor by SIGKILL while it
writes, and half of the rounds also pause a broker, as an election or a disk would. PROOF='--rounds 20 --seed 7'.
"""

import argparse
import hashlib
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import pyspark
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from jobs_world import JARS, KEEP, SMALL

from barnabas_jobs.app.connector import session
from barnabas_jobs.jobs import archive, restore
from barnabas_jobs.kafka.writer import QUIET_S
from harness.cluster import BarnabasCluster, barnabas_cluster
from harness.deadline import wait_for
from harness.server_process import bound_to_us
from harness.stock_client import StockClient

TOPIC: Final = "proof"
PARTITIONS: Final = 8
RECORDS: Final = 200_000
VALUE_BYTES: Final = 500
FIRST_MS: Final = 1_700_000_000_000
RESTORE_SECONDS_MAX: Final = 1200.0
START_SECONDS_MAX: Final = 900.0
PAUSE_SECONDS_MAX: Final = 8.0
EXECUTOR: Final = "CoarseGrainedExecutorBackend"
BROKERS: Final = {"default.replication.factor": "2", "min.insync.replicas": "1"}


def main() -> int:
    """Run the rounds; return 1 if a restored topic is not equal to the archived one."""
    parser = argparse.ArgumentParser(prog="make proof-restore", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=7, help="when executors are killed, and brokers paused")
    parser.add_argument("--quiet", type=float, default=QUIET_S, help="seconds; what a run waits for by default")
    parser.add_argument("--job", nargs=3, metavar=("NAME", "BOOTSTRAP", "FOLDER"), help="what it starts by itself")
    given = parser.parse_args()
    if given.job:
        name, bootstrap, world = given.job
        _job(name, bootstrap, world, given.quiet)
        return 0
    return _proof(given.rounds, random.Random(given.seed), given.quiet)


def _proof(rounds: int, chance: random.Random, quiet_s: float) -> int:
    with (
        tempfile.TemporaryDirectory(prefix="proof-restore-", ignore_cleanup_errors=True) as folder,
        barnabas_cluster(Path(folder) / "cluster", properties=BROKERS) as cluster,
    ):
        world = Path(folder)
        _spark_home(world)
        client = StockClient(cluster.bootstrap)
        client.create_topic(TOPIC, PARTITIONS, KEEP)
        _fill(client)
        _run_to_its_end(world, cluster, "archive", quiet_s)
        source = _digests(cluster, TOPIC)
        equal = 0
        for number in range(rounds):
            into, began_s = f"{TOPIC}-{number}", time.monotonic()
            killed_at = _killed_restore(world, cluster, into, chance, quiet_s)
            found = _digests(cluster, into)
            equal += found == source
            outcome = "equal" if found == source else f"NOT EQUAL: {found}, wanted {source}"
            print(
                f"round {number}: killed after {killed_at} records, {time.monotonic() - began_s:.0f} s: {outcome}",
                flush=True,
            )
            client.admin.delete_topics([into])[into].result(30)
    print(f"{equal} of {rounds} restores of {RECORDS} records equal")
    return int(equal != rounds)


def _spark_home(world: Path) -> None:
    """Make a home for Spark's cluster, which would otherwise write into the installed one."""
    home = world / "spark"
    home.mkdir()
    for each in ("bin", "jars"):
        (home / each).symlink_to(Path(pyspark.__file__).parent / each)


def _fill(client: StockClient) -> None:
    producer = Producer({**client.settings, "acks": "all", "linger.ms": 20, "enable.idempotence": True})
    for number in range(RECORDS):
        value = b"%d:" % number + bytes(VALUE_BYTES)
        producer.produce(TOPIC, value, b"key-%d" % number, partition=number % PARTITIONS, timestamp=FIRST_MS + number)
        producer.poll(0)
        if number % 10_000 == 0:
            producer.flush(60)
    assert producer.flush(60) == 0


@contextmanager
def _started(world: Path, cluster: BarnabasCluster, name: str, quiet_s: float) -> Iterator[subprocess.Popen[bytes]]:
    words = [__file__, "--quiet", str(quiet_s), "--job", name, cluster.bootstrap, str(world)]
    with (world / "jobs.log").open("ab") as log:
        process = subprocess.Popen(
            bound_to_us([sys.executable, *words]),
            stdout=log,
            stderr=log,
            env={**os.environ, "SPARK_HOME": str(world / "spark")},
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _run_to_its_end(world: Path, cluster: BarnabasCluster, name: str, quiet_s: float) -> None:
    with _started(world, cluster, name, quiet_s) as process:
        _await_good_end(world, process)


def _await_good_end(world: Path, process: subprocess.Popen[bytes]) -> None:
    code = process.wait(RESTORE_SECONDS_MAX)
    assert code == 0, (world / "jobs.log").read_text(encoding="utf-8")[-4000:]


def _killed_restore(world: Path, cluster: BarnabasCluster, into: str, chance: random.Random, quiet_s: float) -> int:
    """Kill an executor of a restore; return how many records there were then."""
    wanted = int(RECORDS * chance.uniform(0.05, 0.7))
    paused = chance.choice((None, 0, 1, 2))
    with _started(world, cluster, into, quiet_s) as process, _consumer(cluster) as consumer:

        def ended_or(found: bool) -> bool:
            return found or process.poll() is not None

        admin = cluster.client().admin
        wait_for(lambda: ended_or(into in admin.list_topics(timeout=30).topics), seconds_max=START_SECONDS_MAX)
        seen = wait_for(
            lambda: _written_so_far(consumer, into),
            lambda found: ended_or(found >= wanted),
            seconds_max=START_SECONDS_MAX,
        )
        assert process.poll() is None, (world / "jobs.log").read_text(encoding="utf-8")[-4000:]
        if paused is not None:
            cluster.pause(paused)
        os.kill(chance.choice(sorted(_executors(process.pid))), signal.SIGKILL)
        if paused is not None:
            time.sleep(chance.uniform(0, PAUSE_SECONDS_MAX))
            cluster.resume(paused)
        _await_good_end(world, process)
        return seen


def _executors(driver: int) -> list[int]:
    """Return the processes of this driver's executors."""
    parents, found = dict[int, int](), list[int]()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                if EXECUTOR.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue  # The process has ended.
    return [each for each in found if driver in _ancestors(each, parents)]


def _ancestors(process: int, parents: dict[int, int]) -> Iterator[int]:
    while process in parents:
        process = parents[process]
        yield process


def _written(consumer: Consumer, topic: str) -> int:
    places = (TopicPartition(topic, partition) for partition in range(PARTITIONS))
    return sum(consumer.get_watermark_offsets(place, 30)[1] for place in places)


def _written_so_far(consumer: Consumer, topic: str) -> int:
    """Return the number of records of a topic that was just made, which not every broker knows yet."""
    try:
        return _written(consumer, topic)
    except KafkaException as error:
        if error.args[0].code() not in (KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART):
            raise
        return 0


@contextmanager
def _consumer(cluster: BarnabasCluster) -> Iterator[Consumer]:
    settings = StockClient(cluster.bootstrap).settings
    with closing(Consumer({**settings, "group.id": "proof", "enable.auto.commit": False})) as consumer:
        yield consumer


def _digests(cluster: BarnabasCluster, topic: str) -> dict[int, tuple[int, str]]:
    """Return by partition the number of records, and a digest of all their content in order."""
    counts, digests = dict.fromkeys(range(PARTITIONS), 0), {each: hashlib.sha256() for each in range(PARTITIONS)}
    with _consumer(cluster) as consumer:
        wanted = _written(consumer, topic)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        while sum(counts.values()) < wanted:
            for message in consumer.consume(5000, 5.0):
                partition = message.partition()
                assert partition is not None
                assert message.error() is None, message.error()
                counts[partition] += 1
                digests[partition].update(repr((message.timestamp(), message.key(), message.value())).encode())
    return {each: (counts[each], digests[each].hexdigest()[:12]) for each in counts}


def _job(name: str, bootstrap: str, world: str, quiet_s: float) -> None:
    """Run `archive`, or a restore into the topic with this name."""
    conf = {**SMALL, "spark.local.dir": f"{world}/local", "spark.authenticate.secret": secrets.token_hex()}
    master = "local[2]" if name == "archive" else "local-cluster[2,1,1024]"
    chosen: dict[str, Any] = {"bootstrap": bootstrap, "topic": TOPIC, "archive": f"{world}/archive"}
    spark = session(master, JARS, conf)
    try:
        if name == "archive":
            archive.run(spark, archive.Options(**chosen))
        else:
            restore.run(spark, restore.Options(**chosen, into=name, create=True), quiet_s=quiet_s)
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.exit(main())
