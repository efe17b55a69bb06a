"""The check that a disk keeps the offsets which its checkpoint promises after a power cut."""

from random import Random

import pytest

from barnabas_broker.storage.disk import checkpoints
from barnabas_broker.storage.disk.checkpoints import encode_offsets
from barnabas_broker.wire.records import Record, encode_batch
from barnabas_core.topic_partition import TopicPartition
from simulation.disk import SimulatedDisk
from simulation.power import ends_by_log, unkept_promises

LOG_DIRS = ("/logs",)
SEGMENT = f"/logs/t-0/{checkpoints.segment_file(0, checkpoints.LOG)}"
SYNCED_UP_TO = 3


@pytest.mark.parametrize(
    ("cut_to", "appended", "is_broken"),
    [
        pytest.param(3, 0, False, id="all that was synced is there"),
        pytest.param(1, 0, False, id="it was cut, and waits for its checkpoint"),
        pytest.param(1, 1, True, id="it took a record before its checkpoint was lowered"),
        pytest.param(1, 2, True, id="it took as many records as were cut"),
    ],
)
def test_records_appended_after_a_truncation_count_as_synced_until_the_checkpoint_is_lowered(
    cut_to: int, appended: int, is_broken: bool
) -> None:
    """The next start would take them for synced, although the power cut has removed them."""
    disk, sizes = SimulatedDisk(lambda: 0), []
    disk.make_dir("/logs/t-0")
    file = disk.open_file(SEGMENT)
    for offset in range(SYNCED_UP_TO):
        sizes.append(file.size_bytes())
        file.append(_batch(offset), file.size_bytes())
    sizes.append(file.size_bytes())
    disk.write_atomically(f"/logs/{checkpoints.RECOVERY_POINTS}", _checkpoint(), sync=True)
    file.truncate(sizes[cut_to])
    file.sync()
    for directory in ("/", "/logs", "/logs/t-0"):
        disk.sync_dir(directory)
    for offset in range(cut_to, cut_to + appended):
        file.append(_batch(offset), file.size_bytes())
    ends = ends_by_log(disk, LOG_DIRS)
    disk.lose_power(_KeepsNothing())
    assert bool(list(unkept_promises(disk, LOG_DIRS, ends))) is is_broken


class _KeepsNothing(Random):
    """Power cuts leave nothing that was not synced."""

    def random(self) -> float:
        return 1.0

    def randint(self, a: int, b: int) -> int:
        return a


def _checkpoint() -> bytes:
    return encode_offsets({TopicPartition("t", 0): SYNCED_UP_TO})


def _batch(offset: int) -> bytes:
    return bytes(encode_batch([Record(0, 0, None, b"value")], base_offset=offset))
