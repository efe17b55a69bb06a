"""The progress of a job: its phase, the finished stages and records, its speed, and the time left."""

from typing import Protocol

import msgspec


class Amount(msgspec.Struct, frozen=True):
    """The finished amount (`done`), and the total amount, which is None if unknown."""

    done: int
    total: int | None

    @property
    def fraction(self) -> float | None:
        """The finished share, from 0 to 1; None if the total is unknown."""
        return None if self.total is None else min(1.0, self.done / self.total) if self.total else 1.0

    def __str__(self) -> str:
        return f"{self.done:,}" if self.total is None else f"{self.done:,} of {self.total:,}"


class Seen(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The figures of a job at one moment: stages of all phases, and records of the present phase.

    A job that writes an archive also has `last_commit_ms` and `records_behind`.
    """

    phase: str
    stages: Amount
    records: Amount
    last_commit_ms: int | None = None
    records_behind: int | None = None


class Progress(Seen, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The progress figures of a job, and the records per second in the present phase.

    A driver writes them as JSON to an annotation of its pod, with the wall-clock time of the write (`at_ms`).
    """

    records_per_second: int
    at_ms: int | None = None

    @property
    def seconds_left(self) -> int | None:
        """The estimated seconds left in this phase, or None without a total or a speed."""
        if self.records.total is None or not self.records_per_second:
            return None
        return max(0, self.records.total - self.records.done) // self.records_per_second

    def __str__(self) -> str:
        parts = [f"{self.phase}: {self.records} records"]
        if self.records.fraction is not None:
            parts.append(f"{self.records.fraction:.0%}")
        if self.records_per_second:
            parts.append(f"{self.records_per_second:,} a second")
        if self.seconds_left is not None:
            parts.append(f"{self.seconds_left} s left")
        if self.records_behind is not None:
            parts.append(f"{self.records_behind:,} records behind the topic")
        return ", ".join([*parts, f"stages {self.stages}"])


class Listener(Protocol):
    """An object that receives the progress of a running job."""

    def update(self, progress: Progress, last: bool = False) -> None:
        """Receive the progress; `last` is true for the final progress of the job. Must not raise."""


class Pace:
    """A converter of a job's figures into its progress.

    To compute the speed, the converter keeps the time and the number of records at the start of the phase.
    """

    def __init__(self) -> None:
        self._phase = ""
        self._began_s = 0.0
        self._began_with = 0

    def progress(self, seen: Seen, now_s: float) -> Progress:
        """Return the progress for the latest figures; `now_s` never decreases."""
        if seen.phase != self._phase or seen.records.done < self._began_with:
            self._phase, self._began_s, self._began_with = seen.phase, now_s, seen.records.done
        took_s = now_s - self._began_s
        rate = (seen.records.done - self._began_with) / took_s if took_s else 0.0
        return Progress(**msgspec.structs.asdict(seen), records_per_second=round(rate))
