"""Reviews, Events and statuses of one kind, beyond what holds for all kinds. Pure."""

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
    """Functions of a kind's own type: each kind gets resources of its type alone."""

    review: Callable[[Any, Any, AdmissionContext], Verdict] = _allowed
    """The review of the wanted resource, the one before (None if it is new or unreadable), and the context."""
    warnings: Callable[[Json | None, Json | None], Iterable[str]] = _nothing
    """The warnings about the object before (None: a new one) and after (None: it is to be deleted), whatever changes.
    """
    events: Callable[[Any, Json], Iterable[Said]] = _nothing
    """The Events for the resource with its new status, and the status before."""
    without_cluster: Callable[[Any, Refusal, str], Resource] = with_problem
    """The resource with the status that says why it has no Cluster, now (RFC 3339)."""
