"""If an essential task of a broker fails or hangs, the process logs it, releases its leases, and ends."""

import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic
from faulty_broker import FaultyBroker
from started_brokers import StartBroker

from harness.barnabas_server import page
from harness.deadline import wait_for

EXIT_FAILED = 1
SOAK = pytest.mark.soak(only=True)
QUICK = {"broker_heartbeat_interval_ms": "100", "broker_session_timeout_ms": "3000", "log_cleaner_backoff_ms": "100"}


def break_next_start(broker: FaultyBroker, fault: str) -> None:
    """Give the broker's next process this fault, which begins when a file exists."""
    script = Path(__file__).with_name("broken_broker.py")
    arguments = [str(script), fault, str(broker.folder / "server.properties")]
    broker.server.command[broker.server.command.index("-m") :] = arguments
    broker.is_made_to_fail = True


def broken(start_broker: StartBroker, fault: str) -> FaultyBroker:
    """Start a broker, and let it have this fault."""
    broker = start_broker(partial(break_next_start, fault=fault), **QUICK)
    wait_for(lambda: page(broker.http_port, "/startupz"), lambda found: found == (200, "ok\n"))
    (broker.folder / "broken").touch()
    return broker


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("the feed fails", "the task metadata watch failed: Broken: by the test"),
        pytest.param("the feed hangs", "the task metadata watch hangs", marks=SOAK),
        pytest.param("the leases fail", "the task leases failed: Broken: by the test", marks=SOAK),
        ("the leases hang", "the task leases hangs"),
        pytest.param("the controller fails", "the task controller failed: Broken: by the test", marks=SOAK),
        pytest.param("the controller hangs", "the task controller hangs", marks=SOAK),
        ("a listener fails", "the task metadata watch failed: ZeroDivisionError: division by zero"),
        ("a timer fails", "a callback failed: Broken: by the test"),
        pytest.param("the cleaner fails", "the task cleaner failed: Broken: by the test", marks=SOAK),
        pytest.param("the cleaner hangs", "the task cleaner hangs", marks=SOAK),
        ("a disk hangs", "the task disks hangs"),
    ],
)
def test_a_task_that_fails_or_hangs_ends_the_process_and_releases_its_leases(
    start_broker: StartBroker, fault: str, reason: str
) -> None:
    broker = broken(start_broker, fault)
    broker.client.admin.create_topics([NewTopic("flights", num_partitions=1)])  # No response will come.
    assert broker.server.wait_for_end() == EXIT_FAILED
    assert broker.server.log_text().splitlines()[-1].endswith(f"ended: {reason} (barnabas_broker.app.main)")
    with closing(sqlite3.connect(broker.folder / "metadata.sqlite")) as database:
        held = database.execute("SELECT name FROM leases WHERE holder != ''").fetchall()
    assert held == []


def test_a_broker_that_is_about_to_end_is_unhealthy(start_broker: StartBroker) -> None:
    """The broker still tries to release its leases in a store that does not respond."""
    broker = broken(start_broker, "the store hangs")
    wait_for(
        lambda: page(broker.http_port, "/healthz"),
        lambda found: found[0] == 503 and found[1].startswith("the task ") and found[1].endswith(" hangs\n"),
    )
    assert broker.server.wait_for_end() == EXIT_FAILED
    assert "the leases of this broker could not be released within" in broker.server.log_text()


def told(broker: FaultyBroker, path: str) -> tuple[int, str]:
    """Return a page, or (0, "") if nobody listens."""
    try:
        return page(broker.http_port, path)
    except OSError:
        return 0, ""


def test_a_broker_reports_its_log_recovery_and_can_be_stopped_during_it(
    start_broker: StartBroker,
) -> None:
    broker = start_broker()
    broker.client.create_topic("flights", 3)
    broker.client.write("flights", [b"one"])
    broker.server.kill()
    break_next_start(broker, "the recovery hangs")
    (broker.folder / "broken").touch()
    broker.server.launch()
    recovering = 503, f"log dir {broker.log_dirs[0]} has loaded 0 of 3 partitions\n"
    wait_for(lambda: told(broker, "/startupz"), lambda found: found == recovering)
    assert told(broker, "/readyz") == recovering
    assert told(broker, "/healthz") == (200, "ok\n")
    assert broker.server.stop() == 0
    assert broker.server.log_text().splitlines()[-1].endswith("ready to serve clients (barnabas_broker.app.main)")
    assert not (broker.log_dirs[0] / ".kafka_cleanshutdown").exists()
    (broker.folder / "broken").unlink()
    broker.server.start()
    assert broker.client.read("flights") == [b"one"]


def test_a_long_turn_of_the_loop_is_named_in_the_metrics_and_fails_tests(
    start_broker: StartBroker,
) -> None:
    broker = broken(start_broker, "a turn is long")
    broker.client.create_topic("flights")
    metrics = page(broker.http_port, "/metrics")[1]
    assert 'barnabas_loop_longest_turn_seconds{what="metadata image"} ' in metrics
    assert "barnabas_loop_turn_seconds_count " in metrics
    with pytest.raises(AssertionError, match=r"more than 1.0 s of CPU: .*work was: metadata image"):
        broker.server.stop()
