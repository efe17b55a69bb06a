"""The topic for the dead letters of a share group is judged as the brokers judge it."""

import pytest

from barnabas_operator.planning.groups.group_status import dead_letters_enabled
from barnabas_operator.planning.groups.reset_step import DeadLetterTopic, refuse_dead_letters
from barnabas_operator.resources.consumer_group import ConsumerGroup
from barnabas_operator.resources.schema_check import resource_of
from harness.worker_world import resource

NOW = "2026-11-29T12:00:00Z"
WORKERS = resource_of(ConsumerGroup, resource("ConsumerGroup", "workers", type="share"))


@pytest.mark.parametrize(
    "found",
    [
        DeadLetterTopic("dlq.tasks", is_enabled=True, is_created=False),
        DeadLetterTopic("dlq.tasks", is_enabled=None, is_created=True),
    ],
    ids=["it is enabled", "it is created with its first dead letter"],
)
def test_records_get_dead_letters_in_a_topic_that_is_enabled_or_created(found: DeadLetterTopic) -> None:
    why = refuse_dead_letters(found, {"tasks"})
    assert why is None
    said = dead_letters_enabled(WORKERS, why, NOW)
    assert (said.type, said.status, said.reason) == ("DeadLettersEnabled", "True", "TopicEnabled")


@pytest.mark.parametrize(
    ("found", "reason", "problem"),
    [
        (DeadLetterTopic("dlq.tasks", is_enabled=None, is_created=False), "TopicNotFound", "that does not exist"),
        (
            DeadLetterTopic("dlq.tasks", is_enabled=False, is_created=False),
            "TopicNotEnabled",
            "without errors.deadletterqueue.group.enable=true",
        ),
        (DeadLetterTopic("tasks", is_enabled=True, is_created=False), "TopicIsSource", "that the group reads"),
    ],
)
def test_the_condition_says_why_records_are_archived_without_dead_letters(
    found: DeadLetterTopic, reason: str, problem: str
) -> None:
    why = refuse_dead_letters(found, {"tasks"})
    said = dead_letters_enabled(WORKERS, why, NOW)
    assert (said.status, said.reason) == ("False", reason)
    assert said.message == (
        f"errors.deadletterqueue.topic.name of the group is {found.name}, a topic {problem}, so records are archived "
        "without dead letters; allowed: an existing topic with errors.deadletterqueue.group.enable=true that the group "
        "does not read"
    )
