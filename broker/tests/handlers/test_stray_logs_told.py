"""Stray logs are reported by the config and the metrics, also while their log dir is offline."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from one_replica import FLIGHTS, HERE, NOW_MS, Broker, led

from barnabas_broker.handlers import configs
from barnabas_broker.metadata.documents import AnyDocument, tombstone_key, topic_key
from barnabas_broker.metadata.model import TombstoneDocument, TopicDocument
from barnabas_broker.server.metrics.partition_families import metadata_families
from barnabas_broker.storage.errors import LogDirFailed
from barnabas_broker.wire.messages import DescribeConfigsRequest
from barnabas_core.config.broker_definitions import STRAY_LOGS, STRAY_LOGS_OFFLINE, parse_stray_logs
from barnabas_core.config.describe import ConfigSynonym
from barnabas_core.errors import ErrorCode

TOPIC_ID = UUID(int=7)


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    """Return a broker with a stray log: the metadata does not contain its topic."""
    started = Broker(tmp_path, led(HERE, 5, HERE))
    started.append(3)
    started.start_anew()
    return started


def services(broker: Broker) -> Any:
    return SimpleNamespace(
        logs=broker.logs, image=broker.image, config=broker.config, broker_id=HERE, ignored_configs=list
    )


def described_configs(broker: Broker) -> dict[str, str | None]:
    entries = configs._entries(services(broker), lambda _: [], 4, str(HERE))
    return {each.name: each.value for each in entries if each.name in (STRAY_LOGS, STRAY_LOGS_OFFLINE)}


def told(broker: Broker) -> list[str]:
    return [directory for directory, _ in parse_stray_logs(described_configs(broker).get(STRAY_LOGS) or "")]


def metrics(broker: Broker) -> Iterator[tuple[str, float]]:
    """Yield the metrics of the log dir that contains the log."""
    for family in metadata_families(services(broker)):
        for sample in family.samples():
            if sample is not None and f'"{broker.folder}"' in sample.labels:
                yield family.name, sample.value


def strays_on_disk(broker: Broker) -> list[str]:
    return [str(path) for path in broker.folder.glob(str(FLIGHTS))]


def a_topic() -> tuple[str, AnyDocument]:
    return topic_key(FLIGHTS.topic), TopicDocument(FLIGHTS.topic, TOPIC_ID, (led(HERE, 6, HERE),))


def a_tombstone() -> tuple[str, AnyDocument]:
    return tombstone_key(TOPIC_ID), TombstoneDocument(FLIGHTS.topic, TOPIC_ID, NOW_MS, 1)


def test_a_stray_log_is_reported_while_its_log_dir_is_offline(broker: Broker) -> None:
    before = described_configs(broker)
    assert before.keys() == {STRAY_LOGS}
    assert told(broker) == strays_on_disk(broker)
    broker.lose_disk()
    assert described_configs(broker) == {**before, STRAY_LOGS_OFFLINE: str(broker.folder)}
    broker.find_disk()
    assert described_configs(broker).keys() == {STRAY_LOGS}
    assert told(broker) == strays_on_disk(broker)


def test_a_stray_log_removed_by_hand_is_not_reported_any_longer(broker: Broker) -> None:
    directory = broker.folder / str(FLIGHTS)
    broker.lose_disk()
    directory.rename(broker.folder.parent / "elsewhere")
    assert told(broker) == [str(directory)]
    broker.find_disk()
    assert described_configs(broker) == {}


def test_a_stray_log_is_reported_after_its_log_dir_failed_again(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = told(broker)
    broker.lose_disk()
    with monkeypatch.context() as failing:

        def fails(*_: object) -> None:
            raise LogDirFailed(str(broker.folder), "the disk failed again")

        failing.setattr(broker.logs._loader, "load", fails)
        broker.find_disk()
    assert told(broker) == before
    broker.find_disk()
    assert told(broker) == before


def test_a_returning_stray_log_of_a_deleted_topic_is_removed(broker: Broker) -> None:
    broker.lose_disk()
    broker.show_only(a_topic(), a_tombstone())
    broker.show_only(a_tombstone())
    broker.timers.pass_time(1)
    assert described_configs(broker) == {}
    broker.find_disk()
    assert described_configs(broker) == {}
    assert strays_on_disk(broker) == []


def test_a_returning_stray_log_of_a_restored_topic_is_used(broker: Broker) -> None:
    """A new, empty log in another log dir would hide it."""
    broker.lose_disk()
    broker.show_only(a_topic())
    assert broker.error_of_find() is ErrorCode.KAFKA_STORAGE_ERROR
    broker.find_disk()
    assert broker.partition.log.log_end_offset == 3
    assert described_configs(broker) == {}


def test_metrics_of_an_offline_log_dir_count_its_stray_logs_without_bytes(broker: Broker) -> None:
    online = dict(metrics(broker))
    assert online["barnabas_stray_logs"] == 1
    assert online["barnabas_stray_log_bytes"] > 0
    broker.lose_disk()
    assert dict(metrics(broker)) == {"barnabas_stray_logs": 1}
    broker.find_disk()
    assert dict(metrics(broker)).keys() == online.keys()


def test_metrics_of_a_log_dir_that_was_offline_at_start_contain_no_count(broker: Broker) -> None:
    """Its content is not known."""
    broker.folder.rename(broker.folder.parent / "elsewhere")
    broker.folder.write_text("no directory")
    broker.start_anew()
    assert dict(metrics(broker)) == {}
    assert described_configs(broker) == {}


def test_a_report_or_a_setting_that_is_longer_than_a_string_is_shown_in_part_or_as_null() -> None:
    values = ["x" * 99] * 1_000
    (entry,) = configs._report(STRAY_LOGS, values, "")
    assert entry.value == ",".join(values[:327])
    request = DescribeConfigsRequest(include_synonyms=True)
    long = entry._replace(value="x" * 40_000, synonyms=(ConfigSynonym(STRAY_LOGS, "x" * 40_000, entry.source),))
    shown, cut = configs._entry(request, entry), configs._entry(request, long)
    assert (shown.value, cut.value, cut.synonyms[0].value) == (entry.value, None, None)
