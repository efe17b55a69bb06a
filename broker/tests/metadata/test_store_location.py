"""The values of `metadata.store`."""

from pathlib import Path

from barnabas_broker.metadata.store.metadata_store import KubernetesCluster, SqliteFile, location


def test_three_slashes_are_a_relative_path_and_four_an_absolute_one() -> None:
    assert location("sqlite:///data/metadata.sqlite") == SqliteFile(Path("data/metadata.sqlite"))
    assert location("sqlite:////data/metadata.sqlite") == SqliteFile(Path("/data/metadata.sqlite"))


def test_a_cluster_in_kubernetes_is_named_with_its_namespace() -> None:
    assert location("kubernetes://default/demo") == KubernetesCluster("default", "demo")
