"""The functions of one kind of resource: admission review, warnings, Events and status."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from barnabas_operator.planning.admission.verdict import AdmissionContext, Verdict
from barnabas_operator.planning.conditions import with_problem
from barnabas_operator.planning.kube_event import Said
from barnabas_operator.planning.refusal import Refusal
from barnabas_operator.resources.json_types import Json
from barnabas_operator.resources.resource import Resource


def _allowed(_wanted: Resource, _before: Resource | None, _context: AdmissionContext) -> Verdict:
    return Verdict()


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
