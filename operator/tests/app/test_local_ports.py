"""The ports that `barnabas up` gives to brokers."""

from pathlib import Path

import pytest

from barnabas_operator.app import local_cluster
from barnabas_operator.app.child_process import DataDir
from barnabas_operator.app.local_cluster import LocalCluster, any_free_port
from barnabas_operator.resources.cluster import Brokers, Cluster, ClusterSpec, Listener
from barnabas_operator.resources.kind import ObjectMeta


def test_a_free_port_is_never_the_declared_port_of_a_later_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = any_free_port(set())
    declared = [first, first + 1, first + 2]
    others = list(range(first + 3, first + 200))
    monkeypatch.setattr("random.sample", lambda *_: declared + others)
    monkeypatch.setattr(local_cluster, "is_free", lambda _: True)
    brokers = LocalCluster(DataDir(tmp_path), lambda _: None, lambda: None)
    spec = ClusterSpec(brokers=Brokers(replicas=3), listeners=(Listener(name="plain", port=first),), insecure=True)
    brokers.give_places(Cluster(metadata=ObjectMeta(name="flights"), spec=spec))
    places = list(brokers._places.values())
    assert [place.port for place in places] == declared
    assert not {place.http_port for place in places} & set(declared)
