"""Metrics that require a token, of a real broker and a real lag exporter, with curl and Prometheus."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from harness.barnabas_server import prepare_barnabas
from harness.certificates import Authority
from harness.deadline import PATIENCE_S, wait_for
from harness.server_process import ServerProcess, free_port
from monitoring.prometheus_server import Job, Labels, prometheus

TOKEN: Final = "geheim"


class Pages(NamedTuple):
    """The addresses of a broker and of a lag exporter, and the files with the authority and the token."""

    broker: str
    exporter: str
    authority: Path
    token: Path


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    folder = tmp_path_factory.mktemp("protected")
    authority, token, port = Authority(folder / "pki"), folder / "token", free_port()
    certificate = authority.issue("web").file
    token.write_text(f"{TOKEN}\n")
    files = {"http.ssl.certificate.location": str(certificate), "http.bearer.token.location": str(token)}
    with ExitStack() as stack:
        broker = prepare_barnabas(folder, {"http.listener": f"127.0.0.1:{port}", **files})
        stack.enter_context(closing(broker))
        broker.start()
        exporter = _exporter(folder, broker.bootstrap, certificate, token)
        stack.enter_context(closing(exporter))
        exporter.start()
        yield Pages(f"127.0.0.1:{port}", f"127.0.0.1:{exporter.port}", authority.file, token)
        for each in (broker, exporter):
            assert each.stop() == 0
            assert "Traceback" not in each.log_text()


def _exporter(folder: Path, bootstrap: str, certificate: Path, token: Path) -> ServerProcess:
    port = free_port()
    options = ("--bootstrap", bootstrap, "--listen-address", f"127.0.0.1:{port}", "--interval", "1")
    protected = ("--server.tls.cert-file", str(certificate), "--server.token-file", str(token))
    command = [sys.executable, "-m", "barnabas", "lag-exporter", *options, *protected]
    return ServerProcess(command, port, folder / "lag-exporter.log")


def curl(pages: Pages, url: str, *options: str) -> str:
    """Return the status and the body that curl prints."""
    command = ["curl", "--silent", "--cacert", str(pages.authority), "--write-out", "\n%{http_code}", *options, url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    return done.stdout


def test_curl_gets_metrics_only_with_the_token_and_probes_without_it(pages: Pages) -> None:
    for address, metric in ((pages.broker, "kafka_server_"), (pages.exporter, "barnabas_lag_exporter_up")):
        bearer = ("--header", f"Authorization: Bearer {TOKEN}")
        assert metric in curl(pages, f"https://{address}/metrics", *bearer)
        assert curl(pages, f"https://{address}/metrics").endswith("\n401")
        assert "Authorization: Bearer TOKEN" in curl(pages, f"https://{address}/metrics")
        assert curl(pages, f"https://{address}/healthz") == "ok\n\n200"
        assert curl(pages, f"http://{address}/metrics", *bearer) == "\n000"


def test_prometheus_scrapes_metrics_only_with_the_token(pages: Pages, tmp_path: Path) -> None:
    targets: list[tuple[str, Labels]] = [(pages.broker, {}), (pages.exporter, {})]
    tls = {"scheme": "https", "tls_config": {"ca_file": str(pages.authority)}}
    jobs = [
        Job("with", targets, access={**tls, "authorization": {"credentials_file": str(pages.token)}}),
        Job("without", targets, access=tls),
    ]
    with prometheus(tmp_path, jobs) as running:

        def up() -> dict[str, list[float]]:
            """Return the values of the targets that have been scraped so far."""
            found = {job: running.now(f'up{{job="{job}"}}') for job in ("with", "without")}
            return {job: [each.values[0] for each in series] for job, series in found.items()}

        wait_for(up, lambda found: found == {"with": [1.0, 1.0], "without": [0.0, 0.0]})
        assert running.now('barnabas_lag_exporter_up{job="with"}')
        assert running.now('{__name__=~"kafka_server_.*", job="with"}')
