"""Clients outside of Kubernetes that write, read and copy in transactions, as the User `load` of a secured Cluster."""

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from confluent_kafka import KafkaException, TopicPartition

from e2e.pods.administrator import secret
from e2e.pods.castle import NAME, Castle
from e2e.pods.figures import Figures
from exactly_once.copier import Copier
from harness.deadline import PATIENCE_S, wait_for
from harness.stock_client import RECONNECTS, StockClient
from local_kubernetes.kubectl import PATIENTLY
from torture.secured_traffic import GROUP, PARTITIONS, TOPIC, Traffic

USER: Final = "load"
COPY: Final = f"{TOPIC}-copy"
COPIERS: Final = "copiers"
LISTENER: Final = "outside"
RATE: Final = 200
OVERLAP_S: Final = 86_400
AGAIN_S: Final = 0.5
POLL_S: Final = 2.0
RENEWED_SECONDS_MAX: Final = 600.0
"""The operator reads annotations once a minute, and a kubelet brings a changed Secret within two minutes."""
PAUSE_SECONDS_MAX: Final = 2.0
KILL_SECONDS_MAX: Final = 3.0
"""The same bound if a broker is killed: its next life reports that the one before has ended."""
FAILED: Final = f'barnabas_failed_authentications_total{{listener="{LISTENER}"'


def _manifest() -> dict[str, Any]:
    """Return the User, whose previous password stays valid for a time."""
    rights = (
        ("topic", TOPIC, ["Read", "Write", "Describe"]),
        ("group", GROUP, ["Read"]),
        ("group", COPIERS, ["Read"]),
        ("group", "nobody", ["Read"]),  # That of `StockClient`, which reads back.
        ("transactionalId", COPIERS, ["Write", "Describe"]),
    )
    acls = [
        {"resource": {"type": kind, "name": name, "patternType": "prefix"}, "operations": operations}
        for kind, name, operations in rights
    ]
    password = {"type": "scram-sha-512", "password": {"overlapSeconds": OVERLAP_S}}
    spec = {"cluster": NAME, "authentication": password, "authorization": {"acls": acls}}
    return {"apiVersion": "barnabas.dev/v1alpha1", "kind": "User", "metadata": {"name": USER}, "spec": spec}


class Beats:
    """The longest time between two of something that several clients do."""

    def __init__(self) -> None:
        self.count = 0
        self.longest_gap_s = 0.0
        self._last_s = time.monotonic()

    def note(self, count: int) -> None:
        """Note that so many were done now."""
        now_s = time.monotonic()
        self.longest_gap_s = max(self.longest_gap_s, now_s - self._last_s)
        self.count, self._last_s = self.count + count, now_s


class Copying(threading.Thread):
    """An application that copies in transactions, and begins again with the same id where a client has failed."""

    def __init__(self, name: str, settings: dict[str, Any], copied: Beats) -> None:
        super().__init__(name=name, daemon=True)
        self.failures: list[str] = []
        self._settings = settings
        self._copied = copied
        self._ending = threading.Event()
        self._copier: Copier | None = None

    def run(self) -> None:
        while not self._ending.is_set():
            try:
                self._copier = self._copier or self._new()
                count = self._copier.turn()
            except KafkaException as error:
                self.failures.append(f"{self.name}: {error}")
                self._close()
                self._ending.wait(AGAIN_S)
                continue
            if count:
                self._copied.note(count)
        self._close()

    def finish(self) -> None:
        """Return when it has left the group. Raises AssertionError if it hangs."""
        self._ending.set()
        self.join(PATIENCE_S)
        assert not self.is_alive(), f"{self.name} hangs"

    def _new(self) -> Copier:
        bootstrap = self._settings["bootstrap.servers"]
        settings = {**self._settings, **RECONNECTS}
        return Copier(bootstrap, self.name, TOPIC, COPY, "classic", group=COPIERS, settings=settings)

    def _close(self) -> None:
        copier, self._copier = self._copier, None
        with suppress(KafkaException):
            if copier is not None:
                copier.close()


class SecuredLoad:
    """The clients, and a row for each step that a user takes meanwhile."""

    def __init__(self, castle: Castle, figures: Figures) -> None:
        self._castle = castle
        self._figures = figures
        self._traffic = Traffic(self, RATE)
        self._copied = Beats()
        self._copies: list[Copying] = []
        self.longest_s: dict[str, float] = {}
        """The longest pause of writer and copy, by step."""

    def begin(self) -> None:
        """Create the User and the topics, and start the clients."""
        self._castle.kubectl("apply", "-f-", stdin=json.dumps(_manifest()))
        for topic in (TOPIC, COPY):
            self._castle.create_topic(topic, PARTITIONS, config={"min.insync.replicas": "2"})
        self._castle.kubectl("wait", "--for=condition=Ready", f"user/{USER}", PATIENTLY)
        self.restart_clients()

    def client(self) -> StockClient:
        """Return a client that logs in with the present password."""
        settings = self._settings()
        return StockClient(settings["bootstrap.servers"], settings)

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Count the longest pauses while `what` happens inside, until the Cluster is as declared again."""
        self._traffic.begin_stretch()
        self._copied.longest_gap_s, began_s = 0.0, time.monotonic()
        yield
        spec = self._castle.read("cluster", NAME)["spec"]
        self._castle.brokers = spec["brokers"]["replicas"]
        self._castle.ask("wait", "--for=condition=Rolling=False", f"cluster/{NAME}", PATIENTLY)
        self._castle.await_ready()
        self._await_progress()
        gaps_s = self._traffic.gap_s, self._copied.longest_gap_s
        self.longest_s[what] = max(*gaps_s, self.longest_s.get(what, 0.0))
        shown = f"{time.monotonic() - began_s:.0f} s; longest pause of the writer {gaps_s[0]:.2f} s, of the copy"
        self._figures.tell(" ".join(what.split()), f"{shown} {gaps_s[1]:.2f} s", f"{PAUSE_SECONDS_MAX:g} s")

    def rotate(self) -> None:
        """Rotate the password; return when the brokers take the new one, too."""
        before = secret(self._castle, USER)["password"]
        self._castle.kubectl("annotate", "user", USER, f"barnabas.dev/rotate-password={time.time()}", "--overwrite")
        wait_for(lambda: secret(self._castle, USER)["password"] != before)
        wait_for(lambda: self._castle.kubectl("get", "user", USER, "-ojsonpath={.status.previousPasswordUntil}"))

    def renew(self) -> None:
        """Renew the Cluster's authority; return when each broker uses a new certificate."""
        annotation = "barnabas.dev/force-renew"
        seen = self._renewals()
        self._castle.kubectl("annotate", "secret", f"{NAME}-cluster-ca", f"{annotation}=true")
        wait_for(self._renewals, lambda now: all(now[pod] > seen[pod] for pod in seen), RENEWED_SECONDS_MAX, POLL_S)

    def restart_clients(self) -> None:
        """Start clients with the present password, and end those of before."""
        settings = self._settings()
        before = self._copies[-1:]
        self._traffic.use(settings["bootstrap.servers"], settings)
        self._copies.append(Copying(f"{COPIERS}-{len(self._copies)}", settings, self._copied))
        self._copies[-1].start()
        self._await_progress()
        for copy in before:
            copy.finish()
        self._await_progress()

    def refused_logins(self) -> int:
        """Return how many logins the running brokers have refused at the clients' listener."""
        pages = [self._castle.metrics(pod, 9404) for pod in self._pods()]
        lines = (line for page in pages for line in page.splitlines() if line.startswith(FAILED))
        return sum(int(float(line.rpartition(" ")[2])) for line in lines)

    def problems(self) -> list[str]:
        """End the clients, and compare what they wrote, read and copied with what the topics have."""
        found = self._traffic.problems()
        client, lanes = self.client(), range(PARTITIONS)
        logs = [client.read(TOPIC, lane, 0) for lane in lanes]
        consumer = client.consumer(COPIERS)
        places = [TopicPartition(TOPIC, lane) for lane in lanes]
        wait_for(
            lambda: [place.offset for place in consumer.committed(places, timeout=PATIENCE_S)],
            lambda ends: ends == [len(log) for log in logs],
        )
        consumer.close()
        for copy in self._copies:
            copy.finish()
        for lane, log in zip(lanes, logs, strict=True):
            found += _differences(lane, log, client.read(COPY, lane, 0))
        written = len(self._traffic.history.acknowledged)
        failures = [failure for copy in self._copies for failure in copy.failures]
        print(f"{written} records acknowledged, {self._copied.count} copied; failures of the copy: {failures}")
        return found

    def _settings(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(secret(self._castle, USER)["librdkafka.json"])
        return {**found, "bootstrap.servers": self._castle.bootstrap}

    def _await_progress(self) -> None:
        self._traffic.await_answers()
        copied = self._copied.count
        wait_for(lambda: self._copied.count > copied)

    def _pods(self) -> list[str]:
        return [f"{NAME}-broker-{number}" for number in range(self._castle.brokers)]

    def _renewals(self) -> dict[str, int]:
        logs = {pod: self._castle.ask("logs", pod).stdout for pod in self._pods()}
        return {pod: log.count("now uses the new certificates") for pod, log in logs.items()}


def _differences(lane: int, log: list[bytes], copy: list[bytes]) -> list[str]:
    """Return what is wrong with the copy of a partition: it has the same records in the same order."""
    if log == copy:
        return []
    lost, doubled = set(log) - set(copy), [value for value, count in Counter(copy).items() if count > 1]
    return [f"{COPY}-{lane}: {len(lost)} of {len(log)} records lost, {len(doubled)} doubled, or out of order"]
