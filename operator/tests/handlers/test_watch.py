"""What kopf is told: how it tries again."""

from itertools import islice

from barnabas_operator.handlers.watch import BACKOFFS


def test_a_request_is_tried_for_ever_and_each_one_begins_anew() -> None:
    for _ in range(2):
        assert list(islice(BACKOFFS, 1_000)) == [1, 1, 2, 3, 5] + [10] * 995
