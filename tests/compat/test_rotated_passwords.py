"""A password is rotated under clients that log in all the time: none is refused while both passwords are valid."""

import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
from confluent_kafka import KafkaException, Producer

from barnabas_operator.planning.users.user_plan import SCRAM_512, SetPassword
from barnabas_operator.resources.kind import ObjectMeta
from barnabas_operator.resources.user import User, UserAuthentication, UserSpec
from drivers.secured_pod import RIGHTS, Secured, files_of, secured_broker
from harness.deadline import PATIENCE_S, wait_for

EVE = User(
    metadata=ObjectMeta(name="eve", namespace="air", uid="eve"),
    spec=UserSpec(authentication=UserAuthentication(type="scram-sha-512"), authorization=RIGHTS),
)
SALT = b"the salt of eve's Secret"
OVERLAP_S = 3600
LOGINS = 8
"""How many clients log in with each password while both are valid, by each mechanism."""
WAYS = {"USERS": "SCRAM-SHA-512", "OLD": "PLAIN"}
REFUSED = "_AUTHENTICATION"
Told = list[str]


class Eve:
    """Eve's clients, by SCRAM and by PLAIN."""

    def __init__(self, secured: Secured, folder: Path) -> None:
        self.secured = secured
        self._files: Mapping[str, str] = json.loads((files_of(secured, EVE, folder) / "librdkafka.json").read_text())

    def set_password(self, password: str, overlap_s: int = 0) -> None:
        with self.secured.operator() as admin:
            assert admin.apply_to_users([SetPassword("eve", SCRAM_512, password, SALT, overlap_s)]) == {}

    def settings(self, way: str, password: str, told: Told) -> dict[str, object]:
        own = {"bootstrap.servers": self.secured.addresses[way], "sasl.mechanisms": WAYS[way]}
        return {
            **self._files,
            **own,
            "sasl.password": password,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
            "error_cb": lambda error: told.append(error.name()),
        }

    def refusals(self, password: str) -> int:
        """Log in once by each mechanism; return how many of these logins were refused."""
        return sum(self._is_refused(way, password) for way in WAYS)

    def _is_refused(self, way: str, password: str) -> bool:
        told: Told = []
        client = Producer(self.settings(way, password, told))

        def decided() -> str:
            client.poll(0)
            if REFUSED in told:
                return REFUSED
            try:
                client.list_topics("flights", timeout=0.5)
            except KafkaException:
                return ""
            return "accepted"

        return wait_for(decided, bool, 60.0) == REFUSED

    def sessions(self, password: str) -> Callable[[], list[bool]]:
        """Begin a session by each mechanism; return a function that says which of them cannot connect any more."""
        begun: list[tuple[Producer, Told]] = []
        for way in WAYS:
            told: Told = []
            producer = Producer(self.settings(way, password, told))
            producer.list_topics("flights", timeout=PATIENCE_S)
            begun.append((producer, told))

        def refused() -> list[bool]:
            for producer, _ in begun:
                producer.poll(0.01)
            return [REFUSED in told for _, told in begun]

        return refused


@pytest.fixture(scope="module")
def eve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Eve]:
    folder = tmp_path_factory.mktemp("eve")
    with secured_broker(tmp_path_factory.mktemp("secured")) as broker:
        broker.create("flights")
        yield Eve(broker, folder)


def closings(eve: Eve) -> int:
    """Return how many connections the broker has closed because of a changed password."""
    return eve.secured.broker.log_text().count("the credential of 'eve'")


def test_a_rotation_with_an_overlap_refuses_no_login_and_closes_no_connection(eve: Eve) -> None:
    eve.set_password("old")
    old_sessions, before, rotated = eve.sessions("old"), closings(eve), Event()

    def log_in_all_the_time() -> tuple[int, int]:
        """Log in with the old password; return the logins and the refusals."""
        found = after = 0
        while after < LOGINS:
            after += rotated.is_set()
            found += eve.refusals("old")
        return after, found

    with ThreadPoolExecutor(1) as pool:
        load = pool.submit(log_in_all_the_time)
        eve.set_password("new", OVERLAP_S)
        rotated.set()
        assert sum(eve.refusals("new") for _ in range(LOGINS)) == 0
        assert load.result() == (LOGINS, 0)
    assert old_sessions() == [False, False]
    assert closings(eve) == before


def test_the_old_password_and_its_connections_end_when_the_overlap_is_over(eve: Eve) -> None:
    eve.set_password("old")
    eve.set_password("new", OVERLAP_S)
    of_new = eve.sessions("new")
    eve.set_password("newer", 2)
    assert eve.refusals("old") == len(WAYS), "a third password ends the first one at once"
    of_newer = eve.sessions("newer")
    assert wait_for(of_new, all, 60.0) == [True, True]
    assert eve.refusals("new") == len(WAYS)
    assert eve.refusals("newer") == 0
    assert of_newer() == [False, False]


def test_a_revocation_ends_the_old_password_and_its_connections_at_once(eve: Eve) -> None:
    eve.set_password("old")
    eve.set_password("new", OVERLAP_S)
    of_old, of_new = eve.sessions("old"), eve.sessions("new")
    eve.set_password("new")
    assert eve.refusals("old") == len(WAYS)
    assert wait_for(of_old, all, 60.0) == [True, True]
    assert eve.refusals("new") == 0
    assert of_new() == [False, False]


def test_both_passwords_work_after_a_restart_of_the_broker(eve: Eve) -> None:
    eve.set_password("old")
    eve.set_password("new", OVERLAP_S)
    eve.secured.broker.stop()
    eve.secured.broker.launch()
    eve.secured.broker.await_port()
    assert [eve.refusals(password) for password in ("old", "new", "wrong")] == [0, 0, len(WAYS)]
