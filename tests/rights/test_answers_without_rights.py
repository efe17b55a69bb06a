"""Each request without each right, to a running broker: responses match those stored beside Apache Kafka's."""

from pathlib import Path

from barnabas_broker.handlers.guard import API_RIGHTS
from rights.asks import ASKS
from rights.cells import Way, cells, users
from rights.expected import ANSWERS, DIFFERENCES, leaks, lines_of
from rights.run import NO_REFUSAL, answered
from rights.servers import SASL_PLAINTEXT, barnabas

WITHOUT_RIGHTS = {17, 18, 36, 38, 39, 40, 41}
"""The APIs that need no right: clients connect by three of them, and brokers refuse delegation tokens to everybody."""


def test_each_api_with_rights_is_requested_without_them() -> None:
    assert {ask.api_key for ask in ASKS} == API_RIGHTS.keys() - WITHOUT_RIGHTS


def test_requests_without_a_right_get_the_stored_responses_and_change_nothing(tmp_path: Path) -> None:
    every = list(cells())
    names = users(every)
    with barnabas(tmp_path / "broker", names.values()) as server:
        found = answered(server, every, names, [SASL_PLAINTEXT])
    assert not found.changes
    assert not leaks(found.texts)
    assert "".join(lines_of(found.texts, SASL_PLAINTEXT)) == ANSWERS.read_text(encoding="utf-8")
    with_all = {cell.ask.title for (cell, _), text in found.texts.items() if cell.way is Way.ALL and text != NO_REFUSAL}
    assert with_all == {"Fetch of a replica"} < DIFFERENCES.keys(), "brokers fetch through the listener between brokers"
