"""`barnabas operator` where it cannot begin."""

import os
import re
import subprocess
import sys
from pathlib import Path

from barnabas_operator.app import operator
from barnabas_operator.manifests.neighbours import NOBODY_ELSE, Neighbours


def test_without_a_pod_and_a_kubeconfig_the_operator_says_what_it_needs_and_ends(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("KUBE", "HTTP_"))}
    ended = subprocess.run(
        [sys.executable, "-m", "barnabas", "operator"],
        env={**environment, "HOME": str(tmp_path), "HTTP_LISTENER": "127.0.0.1:0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 2
    assert ended.stderr == (
        "barnabas operator: KUBERNETES_SERVICE_HOST is not set, so this is no pod;"
        " KUBECONFIG must name a kubeconfig file\n"
    )


def test_its_help_names_each_environment_variable_that_it_reads() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "barnabas", "operator", "--help"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    source = Path(operator.__file__).read_text(encoding="utf-8")
    read = set(re.findall(r"environ(?:ment)?\.get\(\s*\"([A-Z_]+)\"", source.replace("'", '"')))
    assert shown.returncode == 0
    assert {"WATCH_NAMESPACES", "POD_NAME", "LEASE"} <= read
    assert [name for name in read if not re.search(rf"\b{name}\b", shown.stdout)] == []


def test_an_argument_is_refused() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "barnabas", "operator", "--namespace=x"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 2
    assert "unrecognized arguments: --namespace=x" in ended.stderr


def test_its_neighbours_are_read_with_the_labels_of_monitors_as_the_chart_writes_them() -> None:
    labels = '{"release":"prometheus","team":"a"}'
    given = {"POD_NAMESPACE": "kafka", "RELEASE": "barnabas", "POD_MONITOR_LABELS": labels}
    read = operator.read_settings(given, "me").neighbours
    assert read == Neighbours("kafka", "barnabas", {"release": "prometheus", "team": "a"})
    assert operator.read_settings({}, "me").neighbours == NOBODY_ELSE
