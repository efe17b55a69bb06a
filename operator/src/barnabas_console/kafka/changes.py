"""The changes that visitors may make with `--write`. Each is planned first, so that its effect is shown before."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec
from kafka.structs import TopicPartition as KafkaPartition

from barnabas_core.topic_partition import TopicPartition
from barnabas_operator.kafka.group_admin import GroupAdmin, plan_now
from barnabas_operator.kafka.step_requests import alter_configs
from barnabas_operator.planning.conditions import Refusal
from barnabas_operator.planning.groups.reset_plan import Committed, Move
from barnabas_operator.resources.consumer_group import Reset

LINES_MAX: Final = 200
RESET_ID: Final = "console"
SEND_S: Final = 30.0


class ChangeRefused(Exception):
    """The error that a change is invalid, or that brokers refuse it; the message has the reason."""


class Change(NamedTuple):
    """A planned change: its effect in sentences, and the function that makes it and may raise ChangeRefused."""

    effect: Sequence[str]
    make: Callable[[], None]


def more_partitions(client: Any, topic: str, count: int, present: int) -> Change:
    """Plan more partitions for a topic. Raises ChangeRefused, also if a broker refuses the dry run."""
    if count <= present:
        raise ChangeRefused(f"count={count}; allowed: more than the {present} partitions that {topic} has")
    client.create_partitions({topic: count}, validate_only=True)
    effect = [
        f"The topic {topic} gets {count - present} partitions more, {count} instead of {present}.",
        "Partitions cannot be taken away again. Records with the same key may be in two partitions from then on.",
    ]
    return Change(effect, lambda: client.create_partitions({topic: count}))


def another_config(client: Any, topic: str, name: str, value: str, *, default: bool) -> Change:
    """Plan another value of a config, or with `default` its removal. Raises ChangeRefused."""
    changes = {topic: {name: None if default else value}}

    def alter(*, only_checks: bool) -> None:
        for _, refusal in alter_configs(client, "topic", changes, only_checks=only_checks):
            if refusal is not None:
                raise ChangeRefused(f"{name} of topic {topic}: {refusal}")

    alter(only_checks=True)
    effect = f"is no longer set on the topic {topic}, so the brokers' value holds" if default else f"becomes {value!r}"
    where = "" if default else f" for the topic {topic}"
    return Change([f"The config {name} {effect}{where}."], lambda: alter(only_checks=False))


def fewer_records(client: Any, before: Mapping[TopicPartition, int], starts: Mapping[TopicPartition, int]) -> Change:
    """Plan the deletion of all records before an offset of each partition."""
    kept = {KafkaPartition(*each): offset for each, offset in before.items()}
    effect = [
        f"{each}: the {max(0, offset - starts[each]):,} records before offset {offset:,} are deleted for ever."
        for each, offset in sorted(before.items())
    ]
    return Change(effect, lambda: client.delete_records(kept))


def other_offsets(client: Any, group_id: str, to: Mapping[str, object], topics: Sequence[str], now: datetime) -> Change:
    """Plan a reset of a group, as a ConsumerGroup does. Raises ChangeRefused and ClusterUnreachable."""
    try:
        reset = msgspec.convert({"id": RESET_ID, "to": to, "topics": topics}, Reset)
    except msgspec.ValidationError as error:
        raise ChangeRefused(f"to={dict(to)}: {error}") from error
    admin = GroupAdmin(client, nullcontext)
    plan = plan_now(admin, reset, group_id, now)
    if isinstance(plan, Refusal):
        raise ChangeRefused(plan.message.replace("spec.offsets.reset.", ""))
    if not plan.moves:
        raise ChangeRefused(f"the group {group_id} has no partition to reset")
    lines = [_move(each) for each in plan.moves[:LINES_MAX]]
    more = [f"{len(plan.moves) - LINES_MAX:,} partitions more."] if len(plan.moves) > LINES_MAX else []
    effect = f"The group {group_id} skips {plan.skipped:,} records and reads {plan.again:,} again."

    is_share = admin.describe([group_id]).groups[group_id].share_epoch is not None

    def commit() -> None:
        if is_share:
            refused = admin.alter_start_offsets(group_id, {each.partition: each.to for each in plan.moves})
        else:
            refused = admin.commit(group_id, {each.partition: Committed(each.to) for each in plan.moves})
        if refused is not None:
            why = "; it has members, so stop its consumers first" if refused.has_members else ""
            raise ChangeRefused(f"the coordinator refuses the offsets: {refused}{why}")

    return Change([effect, *lines, *more], commit)


def _move(move: Move) -> str:
    before = "no commit" if move.before is None else f"{move.before:,}"
    return f"{move.partition}: {before} → {move.to:,}"


class NewMessage(NamedTuple):
    """A message to produce; without a partition, its key chooses one as for other producers."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]]


def one_message(connect: Callable[[], Any], message: NewMessage) -> Change:
    """Plan one message; `connect` returns a producer."""
    place = "the partition of its key" if message.partition is None else f"partition {message.partition}"
    value = "null (a tombstone)" if message.value is None else f"{len(message.value):,} bytes"
    key = "no key" if message.key is None else f"the key {message.key.decode(errors='replace')!r}"

    def send() -> None:
        with closing(connect()) as producer:
            future = producer.send(
                message.topic,
                value=message.value,
                key=message.key,
                headers=list(message.headers),
                partition=message.partition,
            )
            producer.flush(timeout=SEND_S)
            future.get(timeout=SEND_S)

    return Change([f"One message with {key} and a value of {value} is written to {place} of {message.topic}."], send)
