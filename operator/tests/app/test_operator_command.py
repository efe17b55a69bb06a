"""`barnabas operator` where it cannot begin."""

import os
import subprocess
import sys
from pathlib import Path


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
