"""What kopf is told: how it tries again. What becomes of what it tells."""

from itertools import islice

import pytest

from barnabas_operator.watch.kopf_registry import BACKOFFS, traced


def test_a_request_is_tried_for_ever_and_each_one_begins_anew() -> None:
    for _ in range(2):
        assert list(islice(BACKOFFS, 1_000)) == [1, 1, 2, 3, 5] + [10] * 995


def test_what_goes_wrong_with_an_object_is_logged_and_counted_and_the_watch_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failed: list[str] = []
    body = {"kind": "Topic", "metadata": {"namespace": "air", "name": "flights"}}
    with traced({"type": "ADDED", "object": body}, failed.append):
        int(str(body["kind"]))
    (record,) = caplog.records
    assert record.getMessage() == "Topic air/flights could not be processed"
    assert record.exc_info is not None
    assert failed == ["Topic"]
