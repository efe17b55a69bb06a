"""F12: settings and surroundings with which a broker cannot start: the error names what is wrong and allowed."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from started_brokers import StartBroker

from harness.certificates import Authority
from harness.deadline import PATIENCE_S, wait_for

CANNOT_START, BAD_SETTINGS = 1, 2


def run_broker(folder: Path, settings: dict[str, str], *arguments: str) -> tuple[int, str]:
    """Run a broker that must not start; return its exit status and output."""
    defaults = {
        "broker.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(folder / "logs"),
        "metadata.store": f"sqlite:///{folder / 'metadata.sqlite'}",
    }
    lines = [f"{name}={value}\n" for name, value in {**defaults, **settings}.items()]
    path = folder / "bad.properties"
    path.write_text("".join(lines), encoding="utf-8")
    command = [sys.executable, "-m", "barnabas", "broker", str(path), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert "Traceback" not in ended.stdout + ended.stderr
    return ended.returncode, ended.stdout + ended.stderr


def test_all_bad_settings_are_named_with_their_values_and_what_is_allowed(tmp_path: Path) -> None:
    bad = {"num.partitions": "0", "compression.type": "rar", "no.such.setting": "7", "http.ssl.key.location": "/key"}
    status, output = run_broker(tmp_path, bad)
    assert status == BAD_SETTINGS
    told = ["num.partitions=0", "at least 1", "compression.type=rar", "zstd", "no.such.setting=7"]
    for word in [*told, "http.ssl.key.location=/key", "http.ssl.certificate.location"]:
        assert word in output
    assert not (tmp_path / "logs").exists()


@pytest.mark.parametrize(("override", "words"), [("num.partitions=0", "num.partitions=0"), ("nonsense", "NAME=VALUE")])
def test_an_override_is_checked_like_the_file(tmp_path: Path, override: str, words: str) -> None:
    status, output = run_broker(tmp_path, {}, "--override", override)
    assert status == BAD_SETTINGS
    assert words in output


def test_an_override_takes_precedence_over_the_file(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        status, output = run_broker(tmp_path, {}, "--override", f"listeners=PLAINTEXT://127.0.0.1:{port}")
    assert status == CANNOT_START
    assert f"127.0.0.1:{port}" in output
    assert "in use" in output


def test_unusable_certificate_and_token_files_of_the_web_listener_are_named(tmp_path: Path) -> None:
    certificate, token = Authority(tmp_path / "pki").issue("web").file, tmp_path / "token"
    token.touch()
    listener = {"http.listener": "127.0.0.1:0"}
    status, output = run_broker(tmp_path, {**listener, "http.ssl.certificate.location": "/nowhere"})
    assert status == CANNOT_START
    assert "http.ssl.certificate.location=/nowhere: must be a file that can be read: No such file" in output
    files = {"http.ssl.certificate.location": str(certificate), "http.bearer.token.location": str(token)}
    status, output = run_broker(tmp_path, {**listener, **files})
    assert status == CANNOT_START
    assert f"http.bearer.token.location={token}: is empty; must hold one token" in output


def test_a_log_dir_in_use_by_another_broker_is_refused(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = start_broker()
    status, output = run_broker(tmp_path, {"log.dirs": str(broker.log_dirs[0])})
    assert status == CANNOT_START
    assert f"{broker.log_dirs[0]}: another process has locked the log dir" in output
    wait_for(broker.ready, lambda answer: answer == "ok")


def test_a_log_dir_of_another_cluster_or_broker_is_refused(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = start_broker()
    assert broker.server.stop() == 0
    another = start_broker()
    assert another.server.stop() == 0
    store = f"sqlite:///{another.folder / 'metadata.sqlite'}"
    status, output = run_broker(tmp_path, {"log.dirs": str(broker.log_dirs[0]), "metadata.store": store})
    assert status == CANNOT_START
    assert "the log dir belongs to node.id=1 of cluster.id=" in output
    store = f"sqlite:///{broker.folder / 'metadata.sqlite'}"
    status, output = run_broker(
        tmp_path, {"broker.id": "2", "log.dirs": str(broker.log_dirs[0]), "metadata.store": store}
    )
    assert status == CANNOT_START
    assert "this broker is node.id=2" in output
    broker.server.start()
    wait_for(broker.ready, lambda answer: answer == "ok")


def test_log_dirs_of_another_broker_are_refused_with_an_empty_store(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = start_broker()
    assert broker.server.stop() == 0
    for _ in range(2):  # The first start must not create another cluster id.
        status, output = run_broker(tmp_path, {"broker.id": "2", "log.dirs": str(broker.log_dirs[0])})
        assert status == CANNOT_START
        assert "the log dir belongs to node.id=1 of cluster.id=" in output
        assert "must belong to node.id=2 and to one cluster" in output
        assert "metadata.sqlite has no cluster id" in output


def test_a_metadata_store_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "metadata.sqlite").write_bytes(b"not a database" * 100)
    status, output = run_broker(tmp_path, {})
    assert status == CANNOT_START
    assert "metadata.sqlite" in output
