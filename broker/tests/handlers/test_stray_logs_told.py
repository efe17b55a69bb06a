"""Logs that the metadata does not know are reported, by the config and the metrics, also while their dir is offline."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from one_replica import FLIGHTS, HERE, NOW_MS, Broker, led

from barnabas_broker.handlers import describe_configs
from barnabas_broker.metadata.documents import AnyDocument, tombstone_key, topic_key
from barnabas_broker.metadata.model import TombstoneDocument, TopicDocument
from barnabas_broker.server.metrics.metadata_families import metadata_families
from barnabas_broker.storage.errors import LogDirFailed
from barnabas_core.config.stray_logs import STRAY_LOGS, STRAY_LOGS_OFFLINE, parse_stray_logs
from barnabas_core.errors import ErrorCode

TOPIC_ID = UUID(int=7)


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    """The metadata does not know its only log."""
    started = Broker(tmp_path, led(HERE, 5, HERE))
    started.append(3)
    started.start_anew()
    return started


def services(broker: Broker) -> Any:
    return SimpleNamespace(
        logs=broker.logs, image=broker.image, config=broker.config, broker_id=HERE, ignored_configs=list
    )


def configs(broker: Broker) -> dict[str, str | None]:
    entries = describe_configs._entries(services(broker), 4, str(HERE))
    return {each.name: each.value for each in entries if each.name in (STRAY_LOGS, STRAY_LOGS_OFFLINE)}


def told(broker: Broker) -> list[str]:
    return [directory for directory, _ in parse_stray_logs(configs(broker).get(STRAY_LOGS) or "")]


def metrics(broker: Broker) -> Iterator[tuple[str, float]]:
    """Of the log dir in which the log is."""
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


def test_what_is_unknown_is_told_while_its_log_dir_is_offline_and_that_it_is(broker: Broker) -> None:
    before = configs(broker)
    assert before.keys() == {STRAY_LOGS}
    assert told(broker) == strays_on_disk(broker)
    broker.lose_disk()
    assert configs(broker) == {**before, STRAY_LOGS_OFFLINE: str(broker.folder)}
    broker.find_disk()
    assert configs(broker).keys() == {STRAY_LOGS}
    assert told(broker) == strays_on_disk(broker)


def test_what_somebody_removed_meanwhile_is_told_no_more_when_the_log_dir_is_back(broker: Broker) -> None:
    directory = broker.folder / str(FLIGHTS)
    broker.lose_disk()
    directory.rename(broker.folder.parent / "elsewhere")
    assert told(broker) == [str(directory)]
    broker.find_disk()
    assert configs(broker) == {}


def test_it_is_told_after_a_log_dir_has_failed_again_while_it_was_looked_at(
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


def test_one_whose_topic_somebody_deletes_is_told_no_more_and_goes_when_the_log_dir_is_back(broker: Broker) -> None:
    broker.lose_disk()
    broker.show_only(a_topic(), a_tombstone())
    broker.show_only(a_tombstone())
    broker.timers.pass_time(1)
    assert configs(broker) == {}
    broker.find_disk()
    assert configs(broker) == {}
    assert strays_on_disk(broker) == []


def test_one_whose_topic_comes_back_meanwhile_is_used_again_when_the_log_dir_is_back(broker: Broker) -> None:
    """An empty one in another log dir would hide it."""
    broker.lose_disk()
    broker.show_only(a_topic())
    assert broker.error_of_find() is ErrorCode.KAFKA_STORAGE_ERROR
    broker.find_disk()
    assert broker.partition.log.log_end_offset == 3
    assert configs(broker) == {}


def test_a_log_dir_that_is_offline_has_the_number_that_is_known_and_no_bytes(broker: Broker) -> None:
    online = dict(metrics(broker))
    assert online["barnabas_stray_logs"] == 1
    assert online["barnabas_stray_log_bytes"] > 0
    broker.lose_disk()
    assert dict(metrics(broker)) == {"barnabas_stray_logs": 1}
    broker.find_disk()
    assert dict(metrics(broker)).keys() == online.keys()


def test_a_log_dir_that_was_offline_at_the_start_has_no_number(broker: Broker) -> None:
    """Nobody has looked at it."""
    broker.folder.rename(broker.folder.parent / "elsewhere")
    broker.folder.write_text("no directory")
    broker.start_anew()
    assert dict(metrics(broker)) == {}
    assert configs(broker) == {}
