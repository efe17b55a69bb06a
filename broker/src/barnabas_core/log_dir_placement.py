"""Choose the log dir for a new partition."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from barnabas_core.errors import ApiError, ErrorCode


class LogDirLoad(NamedTuple):
    """The partitions and bytes of a log dir; `empty_partitions` is the number of partitions without data."""

    path: str
    partitions: int
    empty_partitions: int
    log_bytes: int
    free_bytes: int


def choose_log_dir(placement: str, dirs: Sequence[LogDirLoad], headroom_bytes: int) -> str:
    """Return the path of the online log dir for a new partition, by the value of `log.dirs.placement`.

    `fewest-partitions` is Kafka's rule: the log dir with the fewest partitions, whatever their size; the first one wins
    a tie. `least-bytes` chooses the log dir with the fewest bytes. An empty partition counts as many bytes as an
    average partition with data, so that many new partitions are spread. A log dir with less than `headroom_bytes` free
    comes last. Raise ApiError(KAFKA_STORAGE_ERROR) if no log dir is online.
    """
    if not dirs:
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "no log dir is online")
    return _RULES[placement](dirs, headroom_bytes)


def _fewest_partitions(dirs: Sequence[LogDirLoad], _headroom_bytes: int) -> str:
    return min(dirs, key=lambda load: load.partitions).path


def _least_bytes(dirs: Sequence[LogDirLoad], headroom_bytes: int) -> str:
    with_data = sum(load.partitions - load.empty_partitions for load in dirs)
    average = max(1, sum(load.log_bytes for load in dirs) // max(1, with_data))

    def rank(load: LogDirLoad) -> tuple[bool, int, int]:
        expected_bytes = load.log_bytes + average * load.empty_partitions
        return load.free_bytes < headroom_bytes, expected_bytes, load.partitions

    return min(dirs, key=rank).path


_RULES: Final[Mapping[str, Callable[[Sequence[LogDirLoad], int], str]]] = {
    "fewest-partitions": _fewest_partitions,
    "least-bytes": _least_bytes,
}
