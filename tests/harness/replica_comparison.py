"""Compares the replicas of a partition, batch by batch.

    python -m harness.replica_comparison BROKER/LOG-DIR BROKER/LOG-DIR ...

compares each partition that is in more than one of these directories, to the end of the shorter ones: for brokers that
are stopped, or whose writers rest. Compacted partitions may differ: each replica compacts for itself.
"""

import sys
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from barnabas_broker.wire.record_batch import HEADER_BYTES, BatchHeader, parse_header

LENGTH_OFFSET = 12


class Batch(NamedTuple):
    """A batch as it lies in a log."""

    base_offset: int
    last_offset: int
    data: bytes

    def __str__(self) -> str:
        header = parse_header(self.data, 0)
        return f"offsets {self.base_offset}-{self.last_offset} of epoch {header.leader_epoch}, crc {header.crc:08x}"


def batches(partition_dir: Path) -> Iterator[Batch]:
    """Yield all whole batches of a partition's log, in order."""
    for path in sorted(partition_dir.glob("*.log")):
        data = path.read_bytes()
        position = 0
        while position + HEADER_BYTES <= len(data):
            header = parse_header(data, position)
            end = position + LENGTH_OFFSET + header.length
            if header.length <= 0 or end > len(data):
                break
            yield Batch(header.base_offset, header.last_offset, data[position:end])
            position = end


def parse_headers(partition_dir: Path) -> Iterator[BatchHeader]:
    """Yield the headers of all whole batches of a partition's log."""
    return (parse_header(batch.data, 0) for batch in batches(partition_dir))


def differences(replicas: Mapping[str, Path], end_offset: int | None = None) -> list[str]:
    """Return the differences of replicas (name to partition directory) from the first one.

    Up to `end_offset` (exclusive) all of them must have every batch; without it they are compared up to the end
    of the shortest. Batches before the latest log start offset are not compared.
    """
    read = {name: list(batches(path)) for name, path in replicas.items()}
    start = max((found[0].base_offset for found in read.values() if found), default=0)
    ends = [found[-1].last_offset + 1 if found else 0 for found in read.values()]
    end = min(ends) if end_offset is None else end_offset
    window = {name: [each for each in found if start <= each.base_offset < end] for name, found in read.items()}
    (first, expected), *others = window.items()
    return [problem for name, found in others for problem in _first_difference(first, expected, name, found)]


def _first_difference(first: str, expected: list[Batch], name: str, found: list[Batch]) -> Iterator[str]:
    for here, there in zip_longest(expected, found):
        if here != there:
            yield f"{first} has {here or 'nothing more'}, {name} has {there or 'nothing more'}"
            return


def partition_dirs(log_dirs: Mapping[str, Path]) -> dict[str, dict[str, Path]]:
    """Return for each partition its directory in each of these log dirs."""
    found: dict[str, dict[str, Path]] = {}
    for name, log_dir in log_dirs.items():
        for path in sorted(log_dir.iterdir()):
            if (path / "partition.metadata").exists():
                found.setdefault(path.name, {})[name] = path
    return found


def main(arguments: list[str]) -> int:
    """Return 1 if replicas differ."""
    problems = 0
    for partition, replicas in sorted(partition_dirs({text: Path(text) for text in arguments}).items()):
        found = differences(replicas)
        problems += len(found)
        print(f"{partition}: {len(replicas)} replicas, {'; '.join(found) or 'alike'}")
    return int(problems > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
