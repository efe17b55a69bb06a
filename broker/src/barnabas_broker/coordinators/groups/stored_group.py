"""The conversion of a group to a record of `__consumer_offsets`, and back."""

from collections.abc import Mapping

from barnabas_broker.coordinators.groups.group import Group, GroupState
from barnabas_broker.coordinators.groups.member import Member
from barnabas_broker.coordinators.groups.messages import MemberProtocol
from barnabas_broker.coordinators.groups.records import GroupMetadata, StoredMember
from barnabas_broker.coordinators.runtime.alarms import Now
from barnabas_broker.coordinators.runtime.record_strings import MalformedRecord


def metadata(group: Group, assignments: Mapping[str, bytes]) -> GroupMetadata:
    """Return the group's metadata; a member that is not in `assignments` has an empty assignment."""
    return GroupMetadata(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol_name,
        leader=group.leader,
        state_timestamp_ms=group.state_timestamp_ms,
        members=tuple(
            StoredMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.session_timeout_ms,
                subscription=member.metadata(group.protocol_name),
                assignment=assignments.get(member.member_id, b""),
            )
            for member in group.members.values()
        ),
    )


def restore(group_id: str, stored: GroupMetadata, now: Now) -> Group:
    """Return the group that a record describes. Raises MalformedRecord.

    A group with members is Stable, and the sessions of its members begin now. A group without members is Empty.
    """
    _check_restorable(stored)
    member_ids = [member.member_id for member in stored.members]
    group = Group(
        group_id,
        state=GroupState.STABLE if stored.members else GroupState.EMPTY,
        state_timestamp_ms=stored.state_timestamp_ms,
        generation=stored.generation,
        protocol_type=stored.protocol_type or None,
        protocol_name=stored.protocol,
        leader=stored.leader if stored.leader in member_ids else None,
    )
    for member in stored.members:
        protocols = () if stored.protocol is None else (MemberProtocol(stored.protocol, member.subscription),)
        restored = Member(
            member_id=member.member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            session_timeout_ms=member.session_timeout_ms,
            protocols=protocols,
            assignment=member.assignment,
            session_deadline_ms=group.expect(now.steady_ms + member.session_timeout_ms),
            is_unheard_of=True,
        )
        group.add(restored, stored.protocol_type)
    group.learn_subscribed_topics()
    return group


def _check_restorable(stored: GroupMetadata) -> None:
    """Raise MalformedRecord if the record describes an impossible group."""
    if stored.generation < 0:
        raise MalformedRecord(f"the generation is {stored.generation}, but must be 0 or more")
    if stored.members and not (stored.protocol_type and stored.protocol):
        raise MalformedRecord(f"the group has {len(stored.members)} members, but no protocol or no protocol type")
    member_ids = [member.member_id for member in stored.members]
    instance_ids = [member.instance_id for member in stored.members if member.instance_id is not None]
    if "" in member_ids:
        raise MalformedRecord("a member of the group has no id")
    for ids in (member_ids, instance_ids):
        if len(set(ids)) < len(ids):
            raise MalformedRecord(
                "two members have the same member id or the same group.instance.id; the sorted ids of all members "
                f"(at most 10 are shown) are {', '.join(sorted(ids)[:10])}"
            )
