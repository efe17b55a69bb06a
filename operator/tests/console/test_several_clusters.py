"""A console that shows several clusters, each by a file of client properties."""

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from harness.running_console import RunningConsole, Secured
from harness.server_process import free_port

Barnabas = Callable[..., CompletedProcess[str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "clusters").mkdir()
    return tmp_path / "clusters"


def test_each_cluster_has_its_own_addresses_and_logins(console_broker: Secured, tmp_path: Path, folder: Path) -> None:
    login = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
    (folder / "berlin.properties").write_text(f"bootstrap.servers={console_broker.bootstrap}\n{login}")
    (folder / "oslo.properties").write_text(f"bootstrap.servers={console_broker.open}\n")
    (folder / "away.properties").write_text(f"bootstrap.servers=127.0.0.1:{free_port()}\n")
    (folder / "README").write_text("not a cluster")
    console = RunningConsole(folder, tmp_path, "--path-prefix", "/kafka")
    try:
        console.process.start()
        visitor = console.visitor()
        paths = {each: f"/kafka/clusters/{each}" for each in ("away", "berlin", "oslo")}
        assert visitor.json("/kafka/") == {"clusters": paths}
        assert 'href="/kafka/clusters/oslo/"' in visitor.get("/kafka").text
        assert visitor.get("/kafka/static/console.css").status == 200
        assert visitor.get("/kafka/healthz").status == 200
        page = visitor.get("/kafka/clusters/oslo/topics/flights").text
        assert 'href="/kafka/clusters/oslo/topics/flights/messages"' in page
        assert "nobody, because this cluster asks for no login" in page
        away = visitor.get("/kafka/clusters/away/topics", "application/json")
        assert (away.status, "cannot be read" in away.text) == (503, True)
        assert visitor.get("/kafka/clusters/berlin/topics").headers["Location"].startswith("/kafka/clusters/berlin/log")
        fields = {"username": "carol", "password": "carol-secret", "mechanism": "PLAIN", "back": "/topics"}
        sent = visitor.post("/kafka/clusters/berlin/login", fields)
        assert sent.headers["Location"] == "/kafka/clusters/berlin/topics"
        assert "Path=/kafka/clusters/berlin;" in sent.headers["Set-Cookie"]
        assert "as carol" in visitor.get("/kafka/clusters/berlin/topics").text
        missing = visitor.get("/kafka/clusters/bergen/topics", "application/json")
        assert (missing.status, missing.json) == (404, {"error": "Not Found"})
    finally:
        assert console.process.stop() == 0, console.log()
        console.process.close()


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.txt", "", "has 0 of them; allowed: a folder with 1 to 20 files NAME.properties"),
        ("Oslo.properties", "", "'Oslo.properties'; allowed: lower-case letters"),
        ("oslo.properties", "security.protocol=SSL", "oslo.properties: bootstrap.servers=''; allowed: one or more"),
        ("oslo.properties", "bootstrap.servers=a:1\nsecurity.protocol=TLS", "security.protocol=TLS; allowed"),
        ("oslo.properties", "bootstrap.servers=a:1\nschema.registry.url=b", "oslo.properties: schema.registry.url=b"),
    ],
)
def test_an_invalid_file_of_a_cluster_is_named(
    barnabas: Barnabas, folder: Path, name: str, text: str, words: str
) -> None:
    (folder / name).write_text(text)
    ended = barnabas("console", "--clusters", str(folder))
    assert (ended.returncode, words in ended.stderr) == (2, True), ended.stderr
