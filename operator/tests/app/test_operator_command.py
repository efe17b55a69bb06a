"""`barnabas operator` when it cannot start or go on."""

import json
import os
import re
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import msgspec
import pytest

from barnabas_operator.app.operator import Variables
from harness.command_here import barnabas_here
from harness.deadline import PATIENCE_S

NOBODY_THERE = """
apiVersion: v1
kind: Config
clusters: [{name: nobody, cluster: {server: "http://127.0.0.1:9"}}]
contexts: [{name: nobody, context: {cluster: nobody, user: nobody}}]
users: [{name: nobody, user: {}}]
current-context: nobody
"""


def test_the_operator_exits_and_says_what_it_needs_without_a_pod_and_a_kubeconfig(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("KUBE", "HTTP_"))}
    ended = subprocess.run(
        [sys.executable, "-m", "barnabas", "operator"],
        env={**environment, "HOME": str(tmp_path), "HTTP_LISTENER": "127.0.0.1:0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert ended.returncode == 2
    assert ended.stderr == (
        "barnabas operator: KUBERNETES_SERVICE_HOST is not set, so this is not a pod;"
        " KUBECONFIG must name a kubeconfig file\n"
    )


def test_the_help_names_each_environment_variable_of_the_operator() -> None:
    shown = barnabas_here("operator", "--help")
    read = {field.encode_name for field in msgspec.structs.fields(Variables)}
    assert shown.returncode == 0
    assert {"WATCH_NAMESPACES", "POD_NAME", "LEASE"} <= read
    assert [name for name in read if not re.search(rf"\b{name}\b", shown.stdout)] == []


@pytest.mark.parametrize(
    ("variable", "code", "said"),
    [
        (
            "DRIFT_SECONDS=1m",
            2,
            "the environment variable DRIFT_SECONDS is 1m; allowed: a number of seconds from 0.1 to 86400",
        ),
        (
            "WEBHOOK_CERTIFICATES=/nowhere",
            1,
            "tls.crt in WEBHOOK_CERTIFICATES=/nowhere/tls.crt: must be a file that can be read: ",
        ),
        ("HTTP_LISTENER=192.0.2.1:0", 1, "the operator cannot listen at 192.0.2.1:0: "),
    ],
)
def test_the_operator_exits_with_one_line_if_a_variable_is_unusable(
    variable: str, code: int, said: str, tmp_path: Path
) -> None:
    name, _, value = variable.partition("=")
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(NOBODY_THERE, encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, "-m", "barnabas", "operator"],
        env={**os.environ, "KUBECONFIG": str(kubeconfig), "HTTP_LISTENER": "127.0.0.1:0", name: value},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert ended.returncode == code
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"barnabas operator: {said}")


def test_the_operator_refuses_arguments() -> None:
    ended = barnabas_here("operator", "--namespace=x")
    assert ended.returncode == 2
    assert "unrecognized arguments: --namespace=x" in ended.stderr


class ForgetfulApiServer(BaseHTTPRequestHandler):
    """An API server with version 9 at the first list and version 5 at the next, as after a restore of etcd."""

    asked: ClassVar[set[str]] = set()

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        is_list = "watch=true" not in query
        version = "5" if path in self.asked else "9"
        self.asked.update({path} if is_list else ())
        answer = {"groups": [], "versions": [], "resources": [], "items": [], "metadata": {"resourceVersion": version}}
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode() if is_list else b"")

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def test_the_operator_exits_with_code_1_and_one_line_if_resource_versions_went_back(tmp_path: Path) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), ForgetfulApiServer)
    Thread(target=server.serve_forever, daemon=True).start()
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(NOBODY_THERE.replace("127.0.0.1:9", f"127.0.0.1:{server.server_port}"), encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, "-m", "barnabas", "operator"],
        env={**os.environ, "KUBECONFIG": str(kubeconfig), "HTTP_LISTENER": "127.0.0.1:0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    server.shutdown()
    assert ended.returncode == 1
    last = ended.stderr.splitlines()[-1]
    assert re.fullmatch(
        r"barnabas operator: the watch of \w+s in all namespaces saw version 9, but now sees version 5: etcd was .*",
        last,
    )
