"""The kubectl plugin as its user calls it, with the kubectl of a cluster."""

import os
import subprocess
import sys
from typing import Final

from local_kubernetes.kubectl import Kubectl

SECONDS_MAX: Final = 180.0


def plugin(kubectl: Kubectl, *arguments: str) -> subprocess.Popen[str]:
    """Start `kubectl barnabas` with these arguments."""
    path = os.pathsep.join((str(kubectl.program.parent), os.environ["PATH"]))
    environment = {**kubectl.environment, "PATH": path, "KUBECONFIG": str(kubectl.kubeconfig)}
    command = [sys.executable, "-m", "barnabas_kubectl.main", *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run_plugin(kubectl: Kubectl, *arguments: str) -> tuple[int, str, str]:
    """Run `kubectl barnabas`; return its exit code, output and error output."""
    process = plugin(kubectl, *arguments)
    out, errors = process.communicate(timeout=SECONDS_MAX)
    return process.returncode, out, errors
