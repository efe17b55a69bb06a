"""Passwords are rotated with an overlap on three brokers under load: no login is refused, and no record is lost."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise, product
from pathlib import Path
from threading import Event

import pytest
from confluent_kafka import KafkaException, Producer

from barnabas_operator.app.cluster_options import SystemClock
from barnabas_operator.kafka.cluster_admin import ClusterAdmin
from barnabas_operator.planning.users.user_plan import SCRAM_512, SetPassword
from harness.certificates import Authority
from harness.cluster import BarnabasCluster, prepare_cluster
from harness.server_process import free_port
from harness.soak import took
from torture.secured_traffic import PARTITIONS, TOPIC, Traffic

ROTATIONS = 8
RATE = 200
LOGINS_MIN = 2
"""How often clients log in at each broker, by each mechanism and with each password, while both are valid."""
OVERLAP_S = 3600
GAP_S_MAX = 2.0
SALT = b"the salt of eve's Secret"
MECHANISMS = ("SCRAM-SHA-512", "PLAIN")
PROPERTIES = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SAFE:SASL_SSL",
    "ssl.keystore.type": "PEM",
    "listener.name.safe.sasl.enabled.mechanisms": ",".join(MECHANISMS),
    "listener.name.safe.sasl.plain.credentials": "scram",
    "inter.broker.listener.name": "PLAINTEXT",
    "min.insync.replicas": "2",
}


class Eve:
    """The user whose password is rotated, at the addresses of the brokers."""

    def __init__(self, authority: Authority, addresses: list[str]) -> None:
        self.addresses = addresses
        self._tls = {"security.protocol": "SASL_SSL", "ssl.ca.location": str(authority.file)}

    def settings(self, mechanism: str, password: str) -> dict[str, str]:
        """Return the settings of a client."""
        login = {"sasl.mechanism": mechanism, "sasl.username": "eve", "sasl.password": password}
        return {**self._tls, **login}


class Logins:
    """Clients that log in at each broker, all the time and with each password that is valid."""

    def __init__(self, eve: Eve, *passwords: str) -> None:
        self.count, self.refused = 0, 0
        self._eve = eve
        self._ways = list(product(eve.addresses, MECHANISMS, passwords))

    def run(self, until: Event) -> None:
        """Log in by each way until the event is set, and by each way LOGINS_MIN times at least after that."""
        rounds = 0
        while rounds < LOGINS_MIN:
            rounds += until.is_set()
            for address, mechanism, password in self._ways:
                self.count += 1
                self.refused += self._is_refused(address, self._eve.settings(mechanism, password))

    def _is_refused(self, address: str, login: Mapping[str, str]) -> bool:
        told: list[str] = []
        own = {"bootstrap.servers": address, "log_level": 0, "error_cb": lambda error: told.append(error.name())}
        client = Producer({**login, **own})
        try:
            client.list_topics(timeout=30)
        except KafkaException:
            client.poll(0)
            return True
        client.poll(0)
        return "_AUTHENTICATION" in told


def set_password(cluster: BarnabasCluster, password: str, overlap_s: int) -> None:
    with ClusterAdmin(cluster.bootstrap, SystemClock()) as admin:
        assert admin.apply_to_users([SetPassword("eve", SCRAM_512, password, SALT, overlap_s)]) == {}


@pytest.mark.slow
@pytest.mark.soak(only=True)
@pytest.mark.timeout(1800)
def test_rotated_passwords_refuse_no_login_at_three_brokers(tmp_path: Path) -> None:
    authority, addresses = Authority(tmp_path / "authority"), [f"localhost:{free_port()}" for _ in range(3)]
    eve, listeners = Eve(authority, addresses), [f"SAFE://{address}" for address in addresses]
    properties = {**PROPERTIES, "ssl.keystore.location": str(authority.issue("broker").file)}
    with closing(prepare_cluster(tmp_path / "cluster", 3, properties, listeners=listeners)) as cluster:
        cluster.start()
        cluster.create_topic(TOPIC, PARTITIONS, 3)
        passwords = [f"password-{number}" for number in range(ROTATIONS + 1)]
        set_password(cluster, passwords[0], 0)
        traffic, logins = Traffic(cluster, RATE), 0
        traffic.use(",".join(addresses), eve.settings(MECHANISMS[0], passwords[0]))
        for old, new in pairwise(passwords):
            logins += logins_of_a_rotation(cluster, eve, traffic, old, new)
            print(f"{new}: {logins} logins, none refused", flush=True)
        assert traffic.problems() == []
    print(f"{len(traffic.history.acknowledged)} records acknowledged through {ROTATIONS} rotations", flush=True)
    took("the longest time without an acknowledgement", traffic.longest_gap_s, GAP_S_MAX)


def logins_of_a_rotation(cluster: BarnabasCluster, eve: Eve, traffic: Traffic, old: str, new: str) -> int:
    """Rotate the password under logins, then restart the clients; return the number of logins."""
    rotated, of_old, of_both = Event(), Logins(eve, old), Logins(eve, old, new)
    with ThreadPoolExecutor(1) as pool:
        load = pool.submit(of_old.run, rotated)
        set_password(cluster, new, OVERLAP_S)
        rotated.set()
        of_both.run(rotated)
        traffic.use(",".join(eve.addresses), eve.settings(MECHANISMS[0], new))
        traffic.await_answers()
        load.result()
    assert of_old.refused + of_both.refused == 0, f"{old} to {new}"
    return of_old.count + of_both.count
