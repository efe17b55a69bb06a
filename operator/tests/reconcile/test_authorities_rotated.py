"""The authorities of a Cluster are rotated over an API server in memory, also by operators that are killed."""

import datetime as dt
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

import pytest
from cryptography.x509 import Certificate

from barnabas_kube.client import ApiClient
from barnabas_operator.certificates import certificates_in, has_issued
from barnabas_operator.kube.gather import Nodes
from barnabas_operator.planning.brokers.authorities import RENEW, REPLACE, STEP
from barnabas_operator.planning.brokers.pods import PodsState
from barnabas_operator.reconcile.brokers.applied_objects import AppliedObjects, ClusterSecretsReconciler
from barnabas_operator.resources.cluster import Cluster, ClusterSpec, Listener
from barnabas_operator.resources.kind import ObjectMeta
from barnabas_operator.resources.security import Authentication
from harness.kube_memory import KubeMemory, no_server
from harness.manual_loop_clock import ManualLoopClock
from harness.soak import size

LISTENER = Listener(name="clients", tls=True, authentication=Authentication(type="tls"))
CLUSTER = Cluster(metadata=ObjectMeta(name="one", namespace="air", uid="u-1"), spec=ClusterSpec(listeners=(LISTENER,)))
AUTHORITY, BROKERS, OPERATOR = "one-cluster-ca", "one-broker-certificates", "one-operator"
STEPS = 5
"""The rounds of a rotation: the request, two steps, and two more, after which nothing changes."""
WRITES_MAX = 40
EVERY = size(4, 1)
"""The operator is killed at every such write."""


class Killed(Exception):
    """The operator is killed here."""


class MortalKube(KubeMemory):
    """An API server that kills the operator at its last write; that write is applied if `sent` is true."""

    left = WRITES_MAX
    sent = False

    async def request(self, method: str, path: str, **given: Any) -> dict[str, Any]:
        if method == "GET":
            return await super().request(method, path, **given)
        self.left -= 1
        if self.left or self.sent:
            answer = await super().request(method, path, **given)
        if not self.left:
            raise Killed
        return answer


class Rotation:
    """A Cluster with its Secrets; each round is one of an operator that has just started."""

    def __init__(self, api: MortalKube) -> None:
        self.api, self.clock = api, ManualLoopClock()
        self.authorities: set[Certificate] = set()
        self._trusted = b""

    async def round(self) -> None:
        objects, nodes = AppliedObjects(self.api), Nodes(self.api)
        operator = ClusterSecretsReconciler(self.api, objects, nodes, self.clock, lambda: "a password")
        try:
            assert await operator.reconcile(CLUSTER, PodsState(None)) is None
        except Killed:
            await self.round()
        self.authorities.update(self.certificates(AUTHORITY, "ca.crt"))
        self._check_trust()

    async def rotate(self, annotation: str) -> None:
        self.clock.pass_time(STEP.total_seconds())
        found = self.api.found("Secret", AUTHORITY) or {}
        self.api.put({**found, "metadata": {**found["metadata"], "annotations": {annotation: "true"}}})
        for _ in range(STEPS):
            await self.round()
            self.clock.pass_time(STEP.total_seconds())

    def _check_trust(self) -> None:
        """Check that those who have not seen the last change yet trust the certificates that brokers present."""
        (shown,) = self.certificates(BROKERS, "broker.pem")
        (own,) = self.certificates(OPERATOR, "tls.crt")
        before = (
            certificates_in(self._trusted.decode()) if self._trusted else self.certificates(BROKERS, "cluster-ca.crt")
        )
        for each in (shown, own):
            assert any(has_issued(authority, each) for authority in before)
        self._trusted = self.data(BROKERS)["cluster-ca.crt"]

    def data(self, name: str) -> dict[str, bytes]:
        return {key: b64decode(value) for key, value in (self.api.found("Secret", name) or {})["data"].items()}

    def certificates(self, name: str, key: str) -> list[Certificate]:
        return list(certificates_in(self.data(name)[key].decode()))

    def marks(self) -> dict[str, str]:
        return (self.api.found("Secret", AUTHORITY) or {})["metadata"].get("annotations") or {}


async def rotated(annotation: str, *, last: int = WRITES_MAX, sent: bool = False) -> Rotation:
    """Return a Cluster whose authority was rotated; the operator was killed at its `last` write."""
    async with no_server() as connection:
        rotation = Rotation(MortalKube(connection))
        await rotation.round()
        rotation.api.left, rotation.api.sent = last, sent
        await rotation.rotate(annotation)
        return rotation


def deaths() -> Iterator[tuple[int, bool]]:
    for last in range(1, WRITES_MAX, EVERY):
        yield from ((last, False), (last, True))


@pytest.mark.parametrize("annotation", [RENEW, REPLACE])
async def test_a_rotation_has_one_outcome_if_the_operator_is_killed_at_any_write(annotation: str) -> None:
    killed = 0
    for last, sent in deaths():
        rotation = await rotated(annotation, last=last, sent=sent)
        if rotation.api.left > 0:
            break
        killed += 1
        former, latest = sorted(rotation.authorities, key=lambda each: each.not_valid_before_utc)
        assert (former.public_key() == latest.public_key()) is (annotation == RENEW)
        assert rotation.certificates(BROKERS, "cluster-ca.crt") == [latest]
        for name, key in ((BROKERS, "broker.pem"), (OPERATOR, "tls.crt")):
            (shown,) = rotation.certificates(name, key)
            assert has_issued(latest, shown)
            assert shown.not_valid_before_utc >= latest.not_valid_before_utc
        assert rotation.marks() == {}
        assert "next.key" not in rotation.data(AUTHORITY)
    print(f"{killed} deaths")
    assert killed > STEPS


async def test_authorities_that_expired_while_no_operator_ran_are_replaced_in_one_round(
    connection: ApiClient,
) -> None:
    rotation = Rotation(MortalKube(connection))
    await rotation.round()
    (former,) = rotation.certificates(AUTHORITY, "ca.crt")
    rotation.clock.pass_time((former.not_valid_after_utc - former.not_valid_before_utc).total_seconds())
    rotation.api.left, objects = WRITES_MAX, AppliedObjects(rotation.api)
    late = ClusterSecretsReconciler(rotation.api, objects, Nodes(rotation.api), rotation.clock, lambda: "a password")
    assert await late.reconcile(CLUSTER, PodsState(None)) is None
    (latest,) = rotation.certificates(BROKERS, "cluster-ca.crt")
    (shown,) = rotation.certificates(BROKERS, "broker.pem")
    assert has_issued(latest, shown)
    assert shown.not_valid_after_utc > dt.datetime.fromtimestamp(rotation.clock.now_ms() / 1000, dt.UTC)
