"""The order of runs: runs of the same job on the same topic or archive, or with the same report, never overlap."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from barnabas_operator.planning.maintenance.run_checks import NO_SPARK_OPERATOR
from barnabas_operator.planning.maintenance.run_step import has_begun
from barnabas_operator.planning.maintenance.scheduled_run import REPORT
from barnabas_operator.planning.refusal import INTERNAL_ERROR, KUBERNETES_ERROR, RESOURCE_CONFLICT, Refusal
from barnabas_operator.resources.maintenance_job import MaintenanceJob
from barnabas_operator.resources.maintenance_run import RunSpec
from barnabas_operator.resources.object_meta import READY, condition_of

OTHER_RUN: Final = "OtherRunUnderWay"
TOPIC: Final = "topic"
ABOUT: Final = {"topic": TOPIC, "topics": TOPIC, "into": TOPIC, "archive": "archive", REPORT: REPORT}
"""The options that name the subject of a run, with the kind of the subject."""
OWN_REASONS: Final = frozenset({NO_SPARK_OPERATOR, RESOURCE_CONFLICT, KUBERNETES_ERROR, INTERNAL_ERROR})
"""The reasons, possibly permanent, why a run could not begin although it waited for no other run."""


class _Subject(NamedTuple):
    """The subject of a run; `job` is empty for a report, because even different jobs must not share a report."""

    job: str
    thing: str
    name: str


def waiting_turns(unfinished: Iterable[MaintenanceJob]) -> Mapping[str, Refusal]:
    """Return, by name, the refusal of each run that waits for a started or older run with the same subject.

    A run that could not begin for one of `OWN_REASONS` comes after all other runs, so that they need not wait for it.
    """
    runs = sorted(unfinished, key=_turn)
    first: dict[_Subject, int] = {}
    """The index in `runs` of the first run of each subject."""
    waiting: dict[str, Refusal] = {}
    for turn, run in enumerate(runs):
        subjects = list(_subjects(run.spec))
        shared = [each for each in subjects if each in first]
        if shared and not has_begun(run):
            subject = min(shared, key=lambda each: first[each])
            waiting[run.metadata.name] = _other_run(subject, runs[first[subject]])
        for each in subjects:
            first.setdefault(each, turn)
    return waiting


def _other_run(subject: _Subject, other: MaintenanceJob) -> Refusal:
    about = f"the {subject.thing} {subject.name}"
    what = f"the job {other.spec.job} for {about} is under way in the MaintenanceJob {other.metadata.name}"
    return Refusal(OTHER_RUN, f"{what}; this MaintenanceJob begins after the other MaintenanceJob has ended")


def _turn(run: MaintenanceJob) -> tuple[bool, bool, bool, str, str]:
    made = run.metadata.creation_timestamp  # RFC 3339 times in UTC can be sorted as strings.
    return not has_begun(run), _could_not_begin(run), made is None, made or "", run.metadata.name


def _could_not_begin(run: MaintenanceJob) -> bool:
    if has_begun(run) or run.status is None:
        return False
    ready = condition_of(run.status.conditions, READY)
    return ready is not None and ready.reason in OWN_REASONS


def _subjects(run: RunSpec) -> Iterator[_Subject]:
    """Yield the subjects of a run; messages name the first shared subject."""
    for option, thing in ABOUT.items():
        text = run.options.get(option, "")
        names = text.split(",") if thing == TOPIC else [text.rstrip("/")]
        for name in sorted(set(names) - {""}):
            yield _Subject("" if thing == REPORT else run.job, thing, name)
