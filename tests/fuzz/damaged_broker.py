"""Starts a broker repeatedly with damaged files and records, and checks its promises.

A case takes the files of a broker that has ended, changes some of them, and appends records to `__consumer_offsets`,
all as a function of the seed and the case's number. The broker must start and serve the topic and the group that
were not changed; it must answer requests about the others, and shut down in order; its log must have no internal
failure.
"""

import argparse
import os
import random
import re
import shutil
import sqlite3
import struct
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas_broker.wire.records import Record, encode_batch
from barnabas_core.topic_partition import coordinator_partition
from fuzz.damaged_files import damaged
from fuzz.stored_records import GROUPS, hostile_record
from harness.barnabas_server import prepare_barnabas
from harness.server_process import ServerFailed, ServerProcess, free_port

CANARY = "canary"
CANARY_GROUP = "canary-readers"
OFFSETS_TOPIC = "__consumer_offsets"
OFFSETS_PARTITIONS = 3
PARTITIONS = 4
SEGMENT_BYTES = 1024 * 1024
RECORDS = 130
RECORD_BYTES = 9_000
ASK_S = 20.0
NEVER_DAMAGED = re.compile(rf"{CANARY}-0/|\.lock$|\.deleted$")
SPARED_DOCUMENTS = re.compile(rf"^cluster$|/({CANARY}|{OFFSETS_TOPIC})\b")
REGISTRATION = re.compile(r"^brokers/")
"""After an unclean end, only the registration shows that the broker still has every record."""
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
DAMAGE_SHARE = 0.3
"""The share of files that are damaged; a case has about a hundred."""
REFUSAL = re.compile(
    r"cannot start: (\S+/logs-1: (it|the log dir) belongs to node\.id|feature \S+ is finalized at level)"
)
"""Reasons not to start that are right: another broker's log dir, or a cluster that needs another version."""
FAILURE = re.compile(r"Traceback|\bbug\b|callback failed")


class BrokerMisbehaved(AssertionError):
    """A promise was broken."""


class DamagedBroker:
    """Cases after one `prepare`; each `play` begins with the same files."""

    def __init__(self, folder: Path) -> None:
        self._home = folder / "broker"
        self._kept = folder / "kept"
        self._home.mkdir()
        self._http_port = free_port()
        self.log_dirs = [self._home / "logs-0", self._home / "logs-1"]
        properties = {
            "log.dirs": ",".join(map(str, self.log_dirs)),
            "http.listener": f"127.0.0.1:{self._http_port}",
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
            "offsets.topic.replication.factor": "1",
            "log.flush.interval.messages": "1000",
        }
        self.server: ServerProcess = prepare_barnabas(self._home, properties)
        self._log_seen = 0

    def prepare(self) -> None:
        """Make logs of several segments, producers and groups with offsets, once shut down and once killed."""
        self.server.start()
        admin = AdminClient(self._client())
        small = {"segment.bytes": str(SEGMENT_BYTES)}
        topics = {"plain": small, "compacted": {**small, "cleanup.policy": "compact"}, CANARY: {}}
        made = [NewTopic(name, 1 if name == CANARY else PARTITIONS, config=config) for name, config in topics.items()]
        for future in admin.create_topics(made).values():
            future.result(30)
        self._write({"plain": RECORDS, "compacted": 20, CANARY: 1}, RECORD_BYTES)
        one_each = {coordinator_partition(group_id, OFFSETS_PARTITIONS): group_id for group_id in GROUPS}
        for group_id in (CANARY_GROUP, *one_each.values()):
            self._commit(group_id, CANARY, 1)
        self._keep("stopped", self.server.stop)
        self.server.start()
        self._write({"plain": 5, "compacted": 5}, 1_000)
        self._keep("killed", self.server.kill)

    def _keep(self, name: str, end: object) -> None:
        assert callable(end)
        end()
        shutil.copytree(self._home, self._kept / name, copy_function=shutil.copy2)

    def play(self, seed: int, number: int) -> list[str]:
        """Play a case; return the changes of files. Raises BrokerMisbehaved."""
        random = Random(f"{seed}:{number}")
        shutil.rmtree(self._home)
        shutil.copytree(self._kept / random.choice(("stopped", "killed")), self._home, copy_function=shutil.copy2)
        self._log_seen = len(self.server.log_text())
        done = [*self._append_records(random), *self._damage_files(random), *self._damage_documents(random)]
        try:
            for _ in range(random.choice((1, 1, 2))):
                self._start_and_ask(random)
        except (ServerFailed, AssertionError, KafkaException, OSError) as error:
            if not (isinstance(error, ServerFailed) and REFUSAL.search(self._new_lines())):
                raise BrokerMisbehaved(self._told(number, error, done)) from error
        finally:
            self.server.close()
        return done

    def _new_lines(self) -> str:
        return self.server.log_text()[self._log_seen :]

    def _told(self, number: int, error: Exception, done: list[str]) -> str:
        told = "\n  ".join(done)
        return f"case {number}: {type(error).__name__}: {error}\n  {told}\n{self._new_lines()[-6_000:]}"

    # The changes of a case:

    def _append_records(self, random: Random) -> Iterator[str]:
        """Append records to the partitions of their groups, as a program with the right to write there could."""
        by_partition: dict[int, list[tuple[bytes, bytes | None]]] = {}
        for _ in range(random.choice((0, 20, 60))):
            group_id, record = hostile_record(random)
            by_partition.setdefault(coordinator_partition(group_id, OFFSETS_PARTITIONS), []).append(record)
        for partition, found in sorted(by_partition.items()):
            path = next(
                path for path in self._files() if re.search(rf"{OFFSETS_TOPIC}-{partition}/0+\.log$", str(path))
            )
            data = path.read_bytes()
            stored = [Record(delta, 0, key, value) for delta, (key, value) in enumerate(found)]
            epoch, end_offset = _end_of(data)
            path.write_bytes(data + encode_batch(stored, base_offset=end_offset, leader_epoch=epoch))
            yield f"{len(found)} records to {OFFSETS_TOPIC}-{partition}"

    def _damage_files(self, random: Random) -> Iterator[str]:
        canary_log = f"{OFFSETS_TOPIC}-{coordinator_partition(CANARY_GROUP, OFFSETS_PARTITIONS)}/"
        share = random.choice((0.02, 0.1, DAMAGE_SHARE))
        for path in self._files():
            name = str(path.relative_to(self._home))
            is_spared = NEVER_DAMAGED.search(name) or (canary_log in name and name.endswith(".log"))
            if is_spared or name == "logs-0/meta.properties" or random.random() > share:
                continue
            before, data = path.stat(), path.read_bytes()
            found = damaged(random, path.name, data)
            if found is None:
                path.unlink()
            else:
                path.write_bytes(found)
                if random.random() < 0.5:  # The change leaves no trace.
                    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
            yield f"{name}: {'removed' if found is None else f'{len(data)} bytes, now {len(found)}'}"

    def _damage_documents(self, random: Random) -> Iterator[str]:
        """Damage documents in the metadata store, as a disk or a person might."""
        share = random.choice((0, 0.1, 0.4))
        with closing(sqlite3.connect(self._home / "metadata.sqlite")) as store, store:
            for key, value in store.execute("SELECT key, value FROM documents ORDER BY key").fetchall():
                is_spared = SPARED_DOCUMENTS.search(key) or (REGISTRATION.search(key) and not self._ended_in_order())
                if is_spared or random.random() > share:
                    continue
                found = damaged(random, "document.json", value) or b""
                store.execute("UPDATE documents SET value = ? WHERE key = ?", (found, key))
                yield f"document {key}: {found[:200]!r}"

    def _ended_in_order(self) -> bool:
        """True if every log dir still has the file of its clean shutdown, undamaged."""
        files = [Path(each.name, CLEAN_SHUTDOWN) for each in self.log_dirs]
        pairs = [(self._home / each, self._kept / "stopped" / each) for each in files]
        return all(now.exists() and now.read_bytes() == kept.read_bytes() for now, kept in pairs)

    def _files(self) -> list[Path]:
        return sorted(path for log_dir in self.log_dirs for path in log_dir.rglob("*") if path.is_file())

    # The checks of a case:

    def _start_and_ask(self, random: Random) -> None:
        self.server.start()
        self._serves_the_rest()
        self._asked_about_everything(random)
        self._serves_the_rest()
        status = self.server.stop()
        assert status == 0, f"the broker ended with {status}"
        failures = FAILURE.findall(self._new_lines())
        assert not failures, f"the broker's log has {failures}"

    def _serves_the_rest(self) -> None:
        self._write({CANARY: 1}, 10)
        self._commit(CANARY_GROUP, CANARY, 1)
        for page in ("healthz", "startupz", "metrics"):
            with urllib.request.urlopen(f"http://127.0.0.1:{self._http_port}/{page}", timeout=ASK_S) as answer:
                assert answer.status == 200, page

    def _asked_about_everything(self, random: Random) -> None:
        """Send requests about everything; all responses are allowed."""
        admin = AdminClient(self._client())
        admin.list_consumer_groups(request_timeout=ASK_S).result()
        for described in admin.describe_consumer_groups(list(GROUPS), request_timeout=ASK_S).values():
            described.exception()
        for group_id in random.sample(GROUPS, 10):
            asked = [ConsumerGroupTopicPartitions(group_id)]
            for offsets in admin.list_consumer_group_offsets(asked, request_timeout=ASK_S).values():
                offsets.exception()
        everything = [TopicPartition(name, number) for name in ("plain", "compacted") for number in range(PARTITIONS)]
        consumer = Consumer(self._client(**{"group.id": random.choice(GROUPS)}))
        try:
            for each in everything:
                each.offset = random.randrange(RECORDS)
            consumer.assign(everything)
            consumer.consume(500, 1.0)
        finally:
            consumer.close()
        producer = Producer(self._client(**{"message.timeout.ms": 1_500}))
        for each in everything:
            producer.produce(each.topic, b"more", b"key", each.partition)
        producer.flush(ASK_S)

    def _client(self, **settings: object) -> dict[str, Any]:
        return {"bootstrap.servers": self.server.bootstrap, "log_level": 0, **settings}

    def _write(self, counts: dict[str, int], size_bytes: int) -> None:
        """Write this many records to each partition of each topic."""
        errors: list[object] = []
        settings = {
            "enable.idempotence": len(counts) > 1,
            "message.timeout.ms": int(ASK_S * 1000),
            "batch.num.messages": 1,
        }
        producer = Producer(self._client(**settings))
        for topic, count in counts.items():
            for number in range(count):
                for partition in range(1 if topic == CANARY else PARTITIONS):
                    value = b"%06d" % number + b"x" * size_bytes
                    producer.produce(
                        topic, value, b"%d" % number, partition, on_delivery=lambda error, _: errors.append(error)
                    )
            producer.flush(ASK_S)
        assert set(errors) == {None}, f"records were refused: {set(errors)}"

    def _commit(self, group_id: str, topic: str, offset: int) -> None:
        consumer = Consumer(self._client(**{"group.id": group_id}))
        try:
            consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
            (found,) = consumer.committed([TopicPartition(topic, 0)], ASK_S)
            assert found.offset == offset, f"the committed offset is {found.offset}, not {offset}"
        finally:
            consumer.close()


def _end_of(data: bytes) -> tuple[int, int]:
    """Return leader epoch and next offset of a log."""
    position = epoch = end_offset = 0
    while position < len(data):
        base_offset, length, epoch = struct.unpack_from(">qii", data, position)
        end_offset = base_offset + struct.unpack_from(">i", data, position + 23)[0] + 1
        position += 12 + length
    return epoch, end_offset


def main() -> int:
    """Play the cases; return 1 if the broker broke a promise."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.damaged_broker", description="A broker on damaged files.")
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--first", type=int, default=0, help="number of the first case, to replay one")
    options = parser.parse_args()
    again = f"--seed {options.seed} --cases {options.cases}"
    print(f"seed {options.seed}; again: make proof-stored-bytes FUZZ='{again}'", flush=True)
    changes = problems = 0
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        broker = DamagedBroker(Path(folder))
        broker.prepare()
        for number in range(options.first, options.first + options.cases):
            if number % 10 == 0:
                print(f"case {number}, {time.monotonic() - began_s:.0f} s", flush=True)
            try:
                changes += len(broker.play(options.seed, number))
            except BrokerMisbehaved as error:
                problems += 1
                print(f"\nPROBLEM: {error}", file=sys.stderr, flush=True)
    took = f"{options.cases} cases in {time.monotonic() - began_s:.0f} s"
    print(f"{took}, {changes} files, logs and documents changed in those that went well, {problems} problems")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
