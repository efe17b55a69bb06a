"""The reassignment of replicas while a partition is in use (KIP-455).

Added replicas fetch as followers; removed replicas stay until all target replicas are in sync. Then `revised` completes
the reassignment.
"""

from collections.abc import Sequence

import msgspec

from barnabas_broker.metadata.controller.decisions.partition_rules import Rules
from barnabas_broker.metadata.controller.decisions.state_changes import revised, with_replicas
from barnabas_broker.metadata.model import PartitionState
from barnabas_core.errors import ApiError, ErrorCode


def decide_reassignment(
    state: PartitionState, targets: Sequence[int] | None, rules: Rules, *, may_change_factor: bool = True
) -> PartitionState:
    """Return the partition with a reassignment to `targets`, the preferred leader first; None cancels a reassignment.

    A reassignment in progress is replaced: replicas that it added are dropped unless they are in `targets`. Raises
    ApiError if:
    - `targets` is not a valid set of replicas;
    - the replication factor would change, and `may_change_factor` is False;
    - the ISR or the ELR has members, but none of these members would remain a replica;
    - `targets` is None, and no reassignment is in progress.
    """
    original = [replica for replica in state.replicas if replica not in state.adding_replicas]
    if targets is None:
        if not is_reassigned(state):
            raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "There is no reassignment to cancel.")
        return _revised(state, original, (), (), rules)
    _check_targets(targets, rules)
    if not may_change_factor and len(targets) != len(original):
        message = (
            f"The replication factor is {len(original)} and must not change, but the request has {len(targets)} "
            "replicas."
        )
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    adding = tuple(replica for replica in targets if replica not in original)
    removing = tuple(sorted(replica for replica in original if replica not in targets))
    return _revised(state, [*targets, *removing], adding, removing, rules)


def is_reassigned(state: PartitionState) -> bool:
    """True if a reassignment of this partition is in progress."""
    return bool(state.adding_replicas or state.removing_replicas)


def _check_targets(targets: Sequence[int], rules: Rules) -> None:
    complaint = _complaint(targets, rules)
    if complaint is not None:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The replica assignment {list(targets)} {complaint}.")


def _complaint(targets: Sequence[int], rules: Rules) -> str | None:
    if not targets:
        return "is empty"
    negative = [broker for broker in targets if broker < 0]
    if negative:
        return f"includes broker {negative[0]}; broker ids must be 0 or more"
    if len(set(targets)) < len(targets):
        return "includes a broker more than once"
    unknown = [broker for broker in targets if broker not in rules.brokers]
    if unknown:
        return f"includes broker {unknown[0]}; the registered brokers are {sorted(rules.brokers)}"
    return None


def _revised(
    state: PartitionState,
    replicas: list[int],
    adding: tuple[int, ...],
    removing: tuple[int, ...],
    rules: Rules,
) -> PartitionState:
    have_all = {*state.isr, *state.elr}
    if have_all and have_all.isdisjoint(replicas):
        message = (
            f"None of the replicas {replicas} has all records; wait until one of them is in the ISR {list(state.isr)}."
        )
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    wanted = msgspec.structs.replace(
        with_replicas(state, replicas),
        isr=tuple(broker for broker in state.isr if broker in replicas),
        adding_replicas=adding,
        removing_replicas=removing,
    )
    return revised(state, wanted, rules)
