"""Targets that would not keep what is restored into them. No Spark runs here."""

import pytest

from barnabas_jobs.planning.errors import JobFailed
from barnabas_jobs.planning.restore_plan import Selected, check_target


def selected(partition: int, size_bytes: int) -> Selected:
    return Selected(
        partition=partition,
        records=10,
        bytes=size_bytes,
        first_offset=0,
        last_offset=9,
        oldest_ms=1,
        newest_ms=2,
        unsettable=0,
    )


KEEPS = {"retention.ms": "-1", "message.timestamp.before.max.ms": str(2**63 - 1)}


def test_a_target_that_keeps_fewer_bytes_than_it_gets_is_refused() -> None:
    """As one that is made with the config of a topic of which the archive has more than that ever held at once."""
    config = {**KEEPS, "cleanup.policy": "delete", "retention.bytes": "1000"}
    told = "into=flights has retention.bytes=1000, and partition 1 gets 1001 bytes of keys, values and headers"
    with pytest.raises(JobFailed, match=told):
        check_target("flights", 2, config, [selected(0, 1000), selected(1, 1001)], 2)


@pytest.mark.parametrize(
    ("policy", "bound"), [("delete", "1001"), ("delete", "-1"), ("compact", "10")], ids=["enough", "all", "compacted"]
)
def test_a_target_that_keeps_all_bytes_is_taken(policy: str, bound: str) -> None:
    config = {**KEEPS, "cleanup.policy": policy, "retention.bytes": bound}
    check_target("flights", 2, config, [selected(1, 1001)], 2)
