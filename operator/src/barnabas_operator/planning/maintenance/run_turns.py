"""Which runs wait for others: no two of one job on one topic, or on one archive, at once. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final

from barnabas_operator.planning.maintenance.run_step import has_begun
from barnabas_operator.planning.refusal import Refusal
from barnabas_operator.resources.maintenance_job import MaintenanceJob
from barnabas_operator.resources.maintenance_run import RunSpec

OTHER_RUN: Final = "OtherRunUnderWay"
ABOUT: Final = ("topic", "topics", "into", "archive")
"""The options that say what a run is about."""


def waiting_turns(unfinished: Iterable[MaintenanceJob]) -> Mapping[str, Refusal]:
    """By name, of those that wait, for whom: for one that has begun, else for an older one."""
    before: list[MaintenanceJob] = []
    waiting: dict[str, Refusal] = {}
    for run in sorted(unfinished, key=_turn):
        for other in before:
            shared = _shared(run.spec, other.spec)
            if shared is not None and not has_begun(run):
                what = f"{run.spec.job} of the {shared} is done by the MaintenanceJob {other.metadata.name}"
                waiting[run.metadata.name] = Refusal(OTHER_RUN, f"{what}; this one begins when that has ended")
                break
        before.append(run)
    return waiting


def _turn(run: MaintenanceJob) -> tuple[bool, bool, str, str]:
    made = run.metadata.creation_timestamp  # RFC 3339 in UTC, whose order is that of the text.
    return not has_begun(run), made is None, made or "", run.metadata.name


def _shared(one: RunSpec, other: RunSpec) -> str | None:
    """What both are about, in words."""
    if one.job != other.job:
        return None
    for option in ABOUT:
        both = _values(one, option) & _values(other, option)
        if both:
            return f"{'topic' if option != 'archive' else option} {min(both)}"
    return None


def _values(run: RunSpec, option: str) -> set[str]:
    return set(run.options.get(option, "").split(",")) - {""}
