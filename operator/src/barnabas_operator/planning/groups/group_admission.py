"""The admission review of a change to a ConsumerGroup."""

from collections.abc import Iterator

from barnabas_operator.planning.admission.verdict import AdmissionContext, Verdict
from barnabas_operator.planning.owners import other_cluster
from barnabas_operator.resources.consumer_group import ConsumerGroup, LagObjective


def review_group(wanted: ConsumerGroup, before: ConsumerGroup | None, context: AdmissionContext) -> Verdict:
    """Refuse to move a ConsumerGroup to another Cluster, or to manage a group that another resource already manages.

    A paused resource may name a group that another resource manages. Without a refusal, return warnings.
    """
    if not wanted.is_paused and context.taken_by is not None:
        taken = f"group {wanted.group_id} is already managed by the ConsumerGroup {context.taken_by}"
        return Verdict(f"{taken}; only one ConsumerGroup may manage a group")
    moves = other_cluster(wanted, before.status.cluster if before is not None and before.status is not None else None)
    if moves is not None:
        return Verdict(moves.message)
    return Verdict(warnings=tuple(_warnings(wanted)))


def _warnings(wanted: ConsumerGroup) -> Iterator[str]:
    objective = wanted.spec.lag_objective
    if objective is not None and objective == LagObjective(for_=objective.for_):
        yield "spec.lagObjective has no limit, so it is always met; set maxRecords, maxSeconds or maxRetentionPercent"
