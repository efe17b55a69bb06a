"""The metadata level of real brokers under `barnabas up`: downgraded as the guide says, pinned, and raised."""

from typing import Any

import pytest
from kafka.admin import UpdateFeatureType

from barnabas_core.conventions import METADATA_LEVEL, METADATA_LEVEL_MAX
from barnabas_core.errors import ErrorCode
from barnabas_operator.app.cluster_options import SystemClock
from barnabas_operator.kafka.cluster_admin import ClusterAdmin
from barnabas_operator.planning.brokers.cluster_checks import Supported
from barnabas_operator.planning.cluster_state import MetadataVersions
from harness.deadline import wait_for
from harness.running_up import RunningUp, cluster_manifest

TWO = cluster_manifest(2)


def two(*lines: str) -> str:
    """Return the manifest of a Cluster with two brokers and these lines in its spec."""
    return TWO.replace("spec:\n", "".join(["spec:\n", *(f"  {line}\n" for line in lines)]), 1)


def bring_back(up: RunningUp, level: int) -> None:
    """Send the request of `kafka-features.sh downgrade`."""
    with ClusterAdmin(up.bootstrap, SystemClock()) as admin:
        client: Any = admin.client
        assert client.update_features({METADATA_LEVEL: (UpdateFeatureType.SAFE_DOWNGRADE, level)}) == {
            METADATA_LEVEL: "OK"
        }


def levels(up: RunningUp) -> MetadataVersions | None:
    with ClusterAdmin(up.bootstrap, SystemClock()) as admin:
        return admin.cluster_state().metadata_versions


@pytest.mark.slow
def test_a_downgraded_metadata_level_stays_while_it_is_pinned_and_is_raised_afterwards(up: RunningUp) -> None:
    up.write("cluster.yaml", two())
    up.start()
    wait_for(lambda: up.cluster_status().metadata_version == METADATA_LEVEL_MAX)
    up.write("cluster.yaml", two("metadataVersion: 1"))
    wait_for(lambda: up.cluster_reason() == "NotSupported")
    assert levels(up) == MetadataVersions(METADATA_LEVEL_MAX, METADATA_LEVEL_MAX), "the operator never lowers the level"
    up.write("cluster.yaml", two("pause: true"))
    wait_for(lambda: up.cluster_status().observed_generation == 2 and up.cluster_reason() == "BrokersReady")
    bring_back(up, 1)
    wait_for(lambda: up.cluster_status().metadata_version == 1)
    up.write("cluster.yaml", two("metadataVersion: 1"))
    wait_for(lambda: up.cluster_status().observed_generation == 3 and up.cluster_reason() == "BrokersReady")
    assert levels(up) == MetadataVersions(1, METADATA_LEVEL_MAX)
    assert "raise barnabas.metadata.version" not in up.log()
    up.write("cluster.yaml", two(f"metadataVersion: {METADATA_LEVEL_MAX + 1}"))
    wait_for(lambda: up.cluster_reason() == "NotSupported")
    assert levels(up) == MetadataVersions(1, METADATA_LEVEL_MAX)
    up.write("cluster.yaml", two())
    wait_for(lambda: up.cluster_status().metadata_version == METADATA_LEVEL_MAX)
    wait_for(lambda: up.cluster_reason() == "BrokersReady")
    assert levels(up) == MetadataVersions(METADATA_LEVEL_MAX, METADATA_LEVEL_MAX)
    assert up.log().count(f"raise barnabas.metadata.version from 1 to {METADATA_LEVEL_MAX}") == 1


def test_the_admin_reads_the_levels_that_brokers_support_and_returns_a_refused_raise(up: RunningUp) -> None:
    up.start()
    with ClusterAdmin(up.bootstrap, SystemClock()) as admin:
        assert admin.supported_metadata_versions([0]) == {0: Supported(1, METADATA_LEVEL_MAX)}
        assert admin.supported_metadata_versions([0, 7]) == {0: Supported(1, METADATA_LEVEL_MAX)}, (
            "there is no broker 7"
        )
        assert admin.raise_metadata_version(METADATA_LEVEL_MAX) is None, "the level is the highest already"
        refused = admin.raise_metadata_version(9)
    assert refused is not None
    assert refused.code == ErrorCode.INVALID_UPDATE_VERSION
    assert f"supports levels 1 to {METADATA_LEVEL_MAX}" in str(refused)
