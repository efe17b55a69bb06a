"""The failures kept of requests are short, however many parts of a response were refused."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kafka.protocol.consumer import OffsetFetchRequest

from barnabas_core.topic_partition import TopicPartition
from barnabas_kafka.asking import Asking, DescribeShareGroupOffsetsResponse, ShareGroupDescribeResponse
from barnabas_lag.kafka.groups import Listed, described_groups, share_offsets

RESPONSE: Any = DescribeShareGroupOffsetsResponse
UNKNOWN_TOPIC_OR_PARTITION = 3
NOT_COORDINATOR = 16
GROUP_AUTHORIZATION_FAILED = 30


def test_equal_refusals_are_one_failure_with_the_first_name_and_a_count() -> None:
    asking = Asking(None)
    codes = [(NOT_COORDINATOR, f"group {number}") for number in range(2_000)]
    asking.refused(OffsetFetchRequest(), 3, [*codes, (0, "group ok"), (GROUP_AUTHORIZATION_FAILED, "group secret")])
    assert list(map(str, asking.failures)) == [
        "the request OffsetFetch to broker 3 failed: NotCoordinatorError for group 0 and 1999 more",
        "the request OffsetFetch to broker 3 failed: GroupAuthorizationFailedError for group secret",
    ]


class OneBroker(Asking):
    """A round of requests that one broker answers with a given response."""

    def __init__(self, response: object) -> None:
        super().__init__(None)
        self._response = response

    def ask(self, requests: Mapping[int, Sequence[Any]]) -> Iterator[tuple[int, Any, Any]]:
        for broker_id, some in requests.items():
            for request in some:
                assert bytes(request.encode(version=1)), "the request has the fields of its definition"
                yield broker_id, request, self._response


def test_the_offsets_and_lags_of_share_groups_are_read_and_unknown_ones_left_out() -> None:
    of_group = RESPONSE.DescribeShareGroupOffsetsResponseGroup
    of_topic = of_group.DescribeShareGroupOffsetsResponseTopic
    of_partition = of_topic.DescribeShareGroupOffsetsResponsePartition
    rows = [(0, 5, 3, 0), (1, -1, -1, 0), (2, 7, 0, UNKNOWN_TOPIC_OR_PARTITION)]
    partitions = [
        of_partition(partition_index=number, start_offset=start, leader_epoch=1, lag=lag, error_code=code)
        for number, start, lag, code in rows
    ]
    groups = [
        of_group(group_id="workers", error_code=0, topics=[of_topic(topic_name="tasks", partitions=partitions)]),
        of_group(group_id="secret", error_code=GROUP_AUTHORIZATION_FAILED, topics=[]),
    ]
    asking = OneBroker(RESPONSE(throttle_time_ms=0, groups=groups))
    listed = {name: Listed(3, "Stable", "share") for name in ("workers", "secret")} | {"old": Listed(3, "", "classic")}
    known = TopicPartition("tasks", 0)
    assert dict(share_offsets(asking, listed, lambda each: each)) == {"workers": ({known: 5}, {known: 3})}
    assert [each.reason for each in asking.failures] == ["GroupAuthorizationFailedError for group secret"]


def test_a_share_group_reads_the_topics_to_which_members_subscribe_before_partitions_are_assigned() -> None:
    response: Any = ShareGroupDescribeResponse
    member = response.DescribedGroup.Member(subscribed_topic_names=["tasks"])
    group = response.DescribedGroup(error_code=0, group_id="workers", group_state="Stable", members=[member])
    asking = OneBroker(response(groups=[group]))
    (described,) = described_groups(asking, {"workers": Listed(3, "Stable", "share")}).values()
    assert described.topics == frozenset({"tasks"})
