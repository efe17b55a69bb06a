"""The admission review of changes, for rules that the schema of a CRD cannot express.

Conditions report the same problems later; the review reports them to the user before the change is stored.
"""

from barnabas_operator.planning.admission.verdict import AdmissionContext, Verdict
from barnabas_operator.planning.rebalance_request import names_another_run
from barnabas_operator.planning.rules_of_kinds import rules_of
from barnabas_operator.resources.api_objects import InvalidResource, ResourceT, resource_of
from barnabas_operator.resources.json_types import Json
from barnabas_operator.resources.kinds import KINDS


def review(old: Json | None, new: Json | None, context: AdmissionContext) -> Verdict:
    """Return the verdict on a change from `old` (None on creation) to `new` (None on deletion).

    An update that neither changes the spec nor names another rebalance plan only gets warnings.
    """
    kind = (new or old or {})["kind"]
    rules = rules_of(kind)
    if new is None and _is_protected(old or {}):
        return _protected(old or {})
    first = Verdict(warnings=tuple(rules.warnings(old, new)))
    if new is None or not (changes(old, new) or names_another_run(old, new)):
        return first
    try:
        wanted = resource_of(KINDS[kind].resource, new)
    except InvalidResource as error:
        return Verdict(str(error))
    verdict = rules.review(wanted, _before(KINDS[kind].resource, old), context)
    return verdict._replace(warnings=(*first.warnings, *verdict.warnings))


def changes(old: Json | None, new: Json) -> bool:
    """True if the resource is new or its spec changes."""
    return old is None or old.get("spec") != new.get("spec")


def _before(kind: type[ResourceT], old: Json | None) -> ResourceT | None:
    """Return the resource before the change, or None if the resource is new or this operator cannot read it."""
    try:
        return resource_of(kind, old) if old is not None else None
    except InvalidResource:
        return None


def _is_protected(old: Json) -> bool:
    return bool(old.get("spec", {}).get("deletionPolicy") == "Protect")


def _protected(old: Json) -> Verdict:
    kind, name = old["kind"], old["metadata"]["name"]
    return Verdict(f"{kind} {name} is not deleted, because spec.deletionPolicy is Protect; first set Delete or Retain")
