"""The conditions `RecordsLost` and `LogsSetAside` in the status of a Cluster.

`RecordsLost` reports partitions that stay offline until a user accepts the loss of records. `LogsSetAside` reports logs
of unknown topics.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from barnabas_operator.planning.cluster_state import ClusterState, StrayLog, Trouble
from barnabas_operator.planning.conditions import condition
from barnabas_operator.planning.refusal import Refusal, listed
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.object_meta import LOGS_SET_ASIDE, RECORDS_LOST, Condition, condition_of

UNKNOWN_TOPICS: Final = "UnknownTopics"
_WAY_ON: Final = "`barnabas restore-metadata` restores the topics, and `barnabas forget-topic` deletes the logs"


def cluster_losses(
    cluster: Cluster, now: str, state: ClusterState | None, strays: Sequence[StrayLog] | None
) -> Iterator[Condition]:
    """Yield `RecordsLost` if records are lost, and `LogsSetAside` if brokers have logs of unknown topics.

    While no broker answers (`state` or `strays` is None), yield the condition unchanged if the status already has it.
    `now` is in RFC 3339.
    """
    if state is None:
        yield from as_before(cluster, RECORDS_LOST)
    elif lost := lost_in_cluster(state):
        yield condition(cluster, RECORDS_LOST, "True", lost.reason, lost.message, now)
    if strays is None:
        yield from as_before(cluster, LOGS_SET_ASIDE)
    elif strays:
        yield condition(cluster, LOGS_SET_ASIDE, "True", UNKNOWN_TOPICS, _set_aside(strays), now)


def lost_in_cluster(state: ClusterState) -> Refusal | None:
    """Return a Refusal that names the partitions without a leader because all their replicas have lost records.

    Without such partitions, return None.
    """
    lost = [trouble for trouble in state.troubles if trouble.lost is not None]
    return records_lost(lost, "--all") if lost else None


def records_lost(lost: Sequence[Trouble], which: str) -> Refusal:
    """Return a Refusal that names partitions with lost records.

    `which` holds the options with which `barnabas accept-loss` accepts the loss.
    """
    text = listed(f"{each.topic}-{each.partition} ({each.lost})" for each in lost)
    way_on = f"`barnabas accept-loss {which}` elects the replicas with the longest logs"
    return Refusal(
        RECORDS_LOST, f"partitions are offline because every replica lacks committed records: {text}; {way_on}"
    )


def _set_aside(strays: Sequence[StrayLog]) -> str:
    total = sum(each.size_bytes for each in strays)
    return (
        f"the metadata does not contain the topics of {len(strays)} logs ({total} bytes): {listed(strays)}; {_WAY_ON}"
    )


def as_before(cluster: Cluster, kind: str) -> Iterable[Condition]:
    """Return the condition of type `kind` in the status, which is kept while the current state is unknown."""
    reported = condition_of(cluster.status.conditions, kind) if cluster.status is not None else None
    return () if reported is None else (reported,)
