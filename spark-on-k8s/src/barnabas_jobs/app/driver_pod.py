"""The pod of a driver, to which the driver reports its progress and its result."""

import json
import ssl
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Final, Self

import msgspec
from msgspec.structs import replace

from barnabas_jobs.planning.ending import Ending
from barnabas_jobs.planning.progress import Progress

ANNOTATION: Final = "barnabas.dev/progress"
ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TERMINATION_LOG: Final = Path("/dev/termination-log")
PAUSE_S: Final = 5.0
HEARTBEAT_S: Final = 30.0
"""The seconds after which unchanged progress is written again; the operator waits for it four times as long."""
ANSWER_SECONDS_MAX: Final = 5.0


class DriverPod:
    """The pod of this driver.

    `account` is the folder with the token of the service account and the CA certificate of the API server.
    """

    def __init__(
        self,
        url: str,
        account: Path,
        termination_log: Path,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._url = url
        self._account = account
        self._termination_log = termination_log
        self._clock = clock
        self._wall_clock = wall_clock
        self._written: Progress | None = None
        self._written_at_s = -PAUSE_S
        self._refused = False

    @classmethod
    def here(cls, environment: Mapping[str, str]) -> Self | None:
        """Return the pod of this process, or None if the environment variables do not name it."""
        names = ("BARNABAS_POD_NAMESPACE", "BARNABAS_POD_NAME", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
        given = [environment.get(name, "") for name in names]
        if not all(given):
            return None
        namespace, name, host, port = given
        host = f"[{host}]" if ":" in host else host
        url = f"https://{host}:{port}/api/v1/namespaces/{namespace}/pods/{name}"
        return cls(url, ACCOUNT, TERMINATION_LOG)

    def tell(self, progress: Progress, last: bool = False) -> None:
        """Write changed progress to an annotation of the pod, at most every 5 s but always at the end.

        Progress that does not change is written every 30 s, as a heartbeat. A failure does not stop the job; only the
        first failure is printed.
        """
        now_s = self._clock()
        pause_s = HEARTBEAT_S if progress == self._written else 0.0 if last else PAUSE_S
        if now_s - self._written_at_s < pause_s:
            return
        self._written_at_s = now_s
        text = msgspec.json.encode(replace(progress, at_ms=round(self._wall_clock() * 1000))).decode()
        try:
            self._patch({"metadata": {"annotations": {ANNOTATION: text}}})
            self._written = progress
        except (OSError, HTTPException) as error:
            if not self._refused:
                print(f"barnabas jobs: the progress cannot be written to the pod {self._url}: {error}", file=sys.stderr)
            self._refused = True

    def end(self, ending: Ending) -> None:
        """Write the result to the pod's termination message. If writing fails, only print the reason."""
        try:
            self._termination_log.write_bytes(ending.shortened())
        except OSError as error:
            print(f"barnabas jobs: {self._termination_log} cannot be written: {error.strerror}", file=sys.stderr)

    def _patch(self, change: object) -> None:
        """Send a patch of the pod, with the present token of the service account: Kubernetes replaces it every hour."""
        token = (self._account / "token").read_text(encoding="ascii").strip()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/merge-patch+json"}
        request = urllib.request.Request(self._url, json.dumps(change).encode(), headers, method="PATCH")
        trust = ssl.create_default_context(cafile=str(self._account / "ca.crt"))
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS_MAX, context=trust) as answer:
            answer.read()
