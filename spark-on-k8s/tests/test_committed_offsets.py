"""The committed offsets of groups, if coordinators answer late or with errors."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from barnabas_jobs.kafka.groups import LOADING, Groups
from barnabas_jobs.planning.archived import GroupOffset
from barnabas_jobs.planning.errors import JobFailed

Answers = dict[str, int | KafkaError]


class Admin:
    """An admin client of a cluster whose coordinators answer about each group with an offset or an error."""

    def __init__(self, answers: Answers, listing_error: KafkaError | None = None) -> None:
        self.answers = answers
        self.errors = [listing_error] if listing_error else []
        self.listed = 0

    def list_consumer_groups(self, **_: object) -> Any:
        self.listed += 1
        is_loaded = self.listed > 1 and self.errors and self.errors[0].code() in LOADING
        groups = [SimpleNamespace(group_id=name, state=None) for name in self.answers]
        return answered(SimpleNamespace(valid=groups, errors=[] if is_loaded else self.errors))

    def list_consumer_group_offsets(self, asked: list[Any], **_: object) -> dict[str, Any]:
        group, answer = asked[0].group_id, self.answers[asked[0].group_id]
        if isinstance(answer, KafkaError):
            failed: Future[Any] = Future()
            failed.set_exception(KafkaException(answer))
            return {group: failed}
        return {group: answered(SimpleNamespace(topic_partitions=[TopicPartition("flights", 0, answer)]))}

    def alter_consumer_group_offsets(self, wanted: list[Any], **_: object) -> dict[str, Any]:
        group = wanted[0].group_id
        places = [SimpleNamespace(error=each) for each in self.answers.values()]
        return {group: answered(SimpleNamespace(topic_partitions=places))}


def answered(value: object) -> Any:
    done: Future[Any] = Future()
    done.set_result(value)
    return done


def groups(monkeypatch: pytest.MonkeyPatch, admin: Admin) -> Groups:
    made = Groups("127.0.0.1:1")
    monkeypatch.setattr(made, "_admin", admin)
    return made


def test_groups_whose_offsets_are_not_shown_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: Answers = {
        "billing": 7,
        "queue": KafkaError(KafkaError.GROUP_ID_NOT_FOUND),
        "private": KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED),
    }
    assert groups(monkeypatch, Admin(answers)).all_committed("flights", [0]) == (GroupOffset("billing", 0, 7),)


@pytest.mark.parametrize("code", [KafkaError._TIMED_OUT, KafkaError.NOT_COORDINATOR])
def test_a_group_whose_coordinator_does_not_answer_fails_the_run(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: Answers = {"billing": 7, "late": KafkaError(code)}
    with pytest.raises(JobFailed, match=r"no broker answered|answered: "):
        groups(monkeypatch, Admin(answers)).all_committed("flights", [0])


def test_a_broker_that_does_not_list_its_groups_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = Admin({"billing": 7}, KafkaError(KafkaError._TRANSPORT))
    with pytest.raises(JobFailed, match="no broker answered"):
        groups(monkeypatch, admin).all_committed("flights", [0])


def test_groups_are_listed_again_while_a_broker_loads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = Admin({"billing": 7}, KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS))
    assert groups(monkeypatch, admin).all_committed("flights", [0]) == (GroupOffset("billing", 0, 7),)
    assert admin.listed == 2


def test_a_group_with_members_is_found_behind_another_error(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = Admin(
        {"a": KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), "b": KafkaError(KafkaError.UNKNOWN_MEMBER_ID)}
    )
    assert not groups(monkeypatch, admin).commit("billing", "flights", {0: 7, 1: 8})
