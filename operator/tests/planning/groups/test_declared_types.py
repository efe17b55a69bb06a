"""The declared type of a group is checked against the real one."""

import pytest

from barnabas_lag.evaluation.lags import GroupLags
from barnabas_operator.planning.groups.reset_plan import GroupSeen
from barnabas_operator.planning.groups.reset_step import refuse_group
from barnabas_operator.resources.consumer_group import ConsumerGroup, ConsumerGroupSpec, GroupType
from barnabas_operator.resources.kind import ObjectMeta


def refusal(declared: GroupType | None, real: str | None) -> tuple[str, str] | None:
    group = ConsumerGroup(metadata=ObjectMeta(name="workers"), spec=ConsumerGroupSpec(type=declared))
    return refuse_group(group, group, GroupSeen(state="Stable", group_type=real, lags=GroupLags(None, {}, {})))


@pytest.mark.parametrize(
    ("declared", "real"),
    [(None, "share"), ("share", "share"), ("share", None), ("consumer", "classic"), ("consumer", "consumer")],
)
def test_a_group_of_the_declared_type_is_managed(declared: GroupType | None, real: str | None) -> None:
    assert refusal(declared, real) is None


def test_a_group_of_another_type_is_refused_and_both_types_are_named() -> None:
    assert refusal("share", "consumer") == (
        "GroupTypeDiffers",
        (
            "spec.type is share, but group workers is of type consumer in Kafka; allowed: share."
            " Change spec.type, or use another group id"
        ),
    )
    assert refusal("consumer", "share") is not None
