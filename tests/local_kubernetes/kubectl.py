"""kubectl as one function: tests ask a cluster in the words of its users."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.deadline import PATIENCE_S, wait_for
from harness.server_process import bound_to_us, free_port

PATIENTLY = f"--timeout={PATIENCE_S:.0f}s"
"""The option of commands that wait."""
SECONDS_MAX = PATIENCE_S + 60
# A process that lives so shortly needs no garbage collector: it would be a fifth of what kubectl costs.
NO_COLLECTING = {"GOGC": "off"}


@dataclass(frozen=True, slots=True)
class Kubectl:
    """A cluster as its administrator sees it: `kubectl("get", "nodes")`."""

    program: Path
    kubeconfig: Path

    def __call__(self, *arguments: str, stdin: str = "") -> str:
        """Return the output. Raises AssertionError with the error output."""
        done = self.ask(*arguments, stdin=stdin)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}{done.stdout}"
        return done.stdout

    def ask(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command where a refusal is an answer, too."""
        return subprocess.run(
            self._command(*arguments),
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS_MAX,
            env={**self.environment, **NO_COLLECTING},
        )

    @contextmanager
    def forwarded(self, namespace: str, target: str, port: int) -> Iterator[int]:
        """Forward a port of this machine's loopback to `port` of a target such as `pod/web-0`."""
        local = free_port()
        command = self._command("-n", namespace, "port-forward", target, f"{local}:{port}")
        own = self.environment
        with subprocess.Popen(bound_to_us(command), stdout=subprocess.PIPE, text=True, env=own) as forward:
            try:
                assert forward.stdout is not None
                line = forward.stdout.readline()
                assert "Forwarding from" in line, f"port-forward {target}: {line!r}"
                yield local
            finally:
                forward.kill()

    @contextmanager
    def namespace(self, name: str) -> Iterator[str]:
        """Make a namespace; delete it at the end with everything in it."""
        self("create", "namespace", name)
        try:
            # Pods are refused until it is there. After an outage controllers come back to the API server in their time.
            account = ("-n", name, "get", "serviceaccount", "default")
            wait_for(lambda: self.ask(*account).returncode == 0, seconds_max=SECONDS_MAX)
            yield name
        finally:
            self("delete", "namespace", name, "--wait=false")

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment, also for helm.

        Both keep for 6 hours which versions of kinds an address serves, and addresses are used again.
        """
        return {**os.environ, "KUBECACHEDIR": str(cache_of(self.kubeconfig))}

    def _command(self, *arguments: str) -> list[str]:
        return [str(self.program), f"--kubeconfig={self.kubeconfig}", *arguments]


def cache_of(kubeconfig: Path) -> Path:
    """Return the cache of a cluster's own kubectl; for ~/.kube/config it is kubectl's default."""
    return kubeconfig.parent / "cache"
