"""The rules for each resource kind: functions for the admission review, the warnings, the Events and the status."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from barnabas_operator.planning.admission.cluster_admission import cluster_warnings, review_cluster
from barnabas_operator.planning.admission.topic_admission import review_topic
from barnabas_operator.planning.admission.user_admission import review_user
from barnabas_operator.planning.admission.verdict import AdmissionContext, Verdict
from barnabas_operator.planning.conditions import with_problem
from barnabas_operator.planning.groups.group_checks import review_group
from barnabas_operator.planning.groups.group_status import group_events, unheard
from barnabas_operator.planning.kube_event import Said
from barnabas_operator.planning.maintenance.run_checks import run_problems
from barnabas_operator.planning.maintenance.run_status import run_events
from barnabas_operator.planning.maintenance.run_status import without_cluster as run_without_cluster
from barnabas_operator.planning.refusal import Refusal
from barnabas_operator.planning.status.cluster_events import cluster_events
from barnabas_operator.planning.topics.topic_events import topic_events
from barnabas_operator.planning.topics.topic_status import without_cluster
from barnabas_operator.planning.users.user_status import without_cluster as user_without_cluster
from barnabas_operator.resources.cluster_kind import CLUSTER
from barnabas_operator.resources.consumer_group import CONSUMER_GROUP
from barnabas_operator.resources.json_types import Json
from barnabas_operator.resources.maintenance_job import MAINTENANCE_JOB, MaintenanceJob
from barnabas_operator.resources.resource import Resource
from barnabas_operator.resources.topic import TOPIC
from barnabas_operator.resources.user import USER


def _allowed(_wanted: Resource, _before: Resource | None, _context: AdmissionContext) -> Verdict:
    return Verdict()


def _review_run(wanted: MaintenanceJob, _before: MaintenanceJob | None, _context: AdmissionContext) -> Verdict:
    """Refuse what would make the job fail, because a MaintenanceJob cannot be corrected after its creation."""
    return Verdict("; ".join(run_problems(wanted.spec)) or None)


def _nothing(_first: object, _second: object) -> Iterable[Any]:
    return ()


class KindRules(NamedTuple):
    """The rules for one resource kind: functions that are called only with resources of that kind."""

    review: Callable[[Any, Any, AdmissionContext], Verdict] = _allowed
    """Return the verdict on a change: the first argument is the desired resource, the second the stored resource.

    The stored resource is None if the resource is created, or if the stored resource cannot be read.
    """
    warnings: Callable[[Json | None, Json | None], Iterable[str]] = _nothing
    """Return warnings about a change from an old object (None on creation) to a new object (None on deletion)."""
    events: Callable[[Any, Json], Iterable[Said]] = _nothing
    """Return the Events for the change of a resource's status; the second argument is the earlier status as JSON."""
    without_cluster: Callable[[Any, Refusal, str], Resource] = with_problem
    """Return the resource with a status that says why it has no Cluster; the last argument is the time in RFC 3339."""


RULES: Final[Mapping[str, KindRules]] = {
    CLUSTER.name: KindRules(review_cluster, cluster_warnings, cluster_events),
    TOPIC.name: KindRules(review_topic, events=topic_events, without_cluster=without_cluster),
    USER.name: KindRules(review_user, without_cluster=user_without_cluster),
    CONSUMER_GROUP.name: KindRules(review_group, events=group_events, without_cluster=unheard),
    MAINTENANCE_JOB.name: KindRules(_review_run, events=run_events, without_cluster=run_without_cluster),
}
"""The rules for the resources of each kind, by the name of the kind."""


def rules_of(kind: str) -> KindRules:
    """Return the `KindRules` of a kind, or the default `KindRules` if `RULES` has no entry for the kind."""
    return RULES.get(kind, KindRules())
