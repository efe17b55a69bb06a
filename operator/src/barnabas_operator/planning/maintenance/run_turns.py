"""The order of runs.

Two runs never overlap if they run the same job on the same topic or archive, or if they write the same archive or
report.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from barnabas_operator.planning.maintenance.run_checks import NO_SPARK_OPERATOR, REPORT
from barnabas_operator.planning.maintenance.run_state import has_begun
from barnabas_operator.planning.refusal import INTERNAL_ERROR, KUBERNETES_ERROR, RESOURCE_CONFLICT, Refusal
from barnabas_operator.resources.maintenance_job import MaintenanceJob
from barnabas_operator.resources.maintenance_run import RunSpec
from barnabas_operator.resources.object_meta import READY, condition_of

OTHER_RUN: Final = "OtherRunUnderWay"
TOPIC: Final = "topic"
ABOUT: Final = {"topic": TOPIC, "topics": TOPIC, "into": TOPIC, "archive": "archive", REPORT: REPORT}
"""The options that name what a run works on (its subjects), with the kind of each subject."""
WRITERS: Final = frozenset({"archive", "compact"})
"""The jobs that write into the folder that their option `archive` names; all others only read it."""
OWN_REASONS: Final = frozenset({NO_SPARK_OPERATOR, RESOURCE_CONFLICT, KUBERNETES_ERROR, INTERNAL_ERROR})
"""The reasons for which a run cannot begin that have nothing to do with other runs.

A run with one of these reasons may never begin, so other runs do not wait for it.
"""


class _Subject(NamedTuple):
    """A topic, an archive or a report that a run works on. Runs with an equal subject do not overlap.

    `job` is empty for a report or an archive that the run writes, so that different jobs that write it have an equal
    subject.
    """

    job: str
    thing: str
    name: str


def waiting_turns(unfinished: Iterable[MaintenanceJob]) -> Mapping[str, Refusal]:
    """Return, by name, the refusal of each run that must wait for another run.

    A run waits for each earlier run with an equal `_Subject`. Runs that have begun come first, then the other runs by
    age. A run whose condition Ready has one of `OWN_REASONS` comes last, so that no other run waits for it.
    """
    runs = sorted(unfinished, key=_turn)
    first: dict[_Subject, int] = {}
    """The index in `runs` of the first run that works on each topic, archive or report."""
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
    """Yield the subjects of a run: the topics, the archive and the report that the run works on."""
    for option, thing in ABOUT.items():
        text = run.options.get(option, "")
        names = text.split(",") if thing == TOPIC else [text.rstrip("/")]
        for name in sorted(set(names) - {""}):
            is_written = thing == REPORT or (thing == "archive" and run.job in WRITERS)
            yield _Subject("" if is_written else run.job, thing, name)
