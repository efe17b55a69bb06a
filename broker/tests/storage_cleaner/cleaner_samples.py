"""Logs for rounds of the cleaner."""

from pathlib import Path

from compaction_samples import OneCompactedLog


def dirty(path: Path) -> OneCompactedLog:
    one = OneCompactedLog(path)
    for _ in range(2):
        one.append([(b"a", bytes(200)), (b"a", b"newest")])
        one.roll()
    return one
