"""Asks the API server many times a second, by one `kubectl proxy`: a start of kubectl costs a fifth of a second of CPU.

with Reader(kubectl) as read:
    pods = read("api/v1/namespaces/castle/pods")["items"]
"""

import json
import re
import subprocess
import urllib.error
import urllib.request
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlencode

from harness.server_process import bound_to_us
from local_kubernetes.kubectl import Kubectl

ANSWER_SECONDS_MAX: Final = 60.0
JSON: Final = "application/json"
TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io"


class Reader:
    """A reader with the rights of a kubectl, however that logs in."""

    def __init__(self, kubectl: Kubectl) -> None:
        command = [str(kubectl.program), f"--kubeconfig={kubectl.kubeconfig}", "proxy", "--port=0"]
        self._proxy = subprocess.Popen(bound_to_us(command), stdout=subprocess.PIPE, text=True)
        assert self._proxy.stdout is not None
        line = self._proxy.stdout.readline()
        found = re.search(r"Starting to serve on (\S+)", line)
        assert found, f"kubectl proxy: {line!r}"
        self._address = found[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the proxy."""
        with self._proxy:
            self._proxy.kill()

    def __call__(self, path: str, accept: str = JSON, **query: str) -> dict[str, Any]:
        """Return a resource or a list of them. Raises AssertionError with the refusal."""
        url = f"http://{self._address}/{path}" + (f"?{urlencode(query)}" if query else "")
        request = urllib.request.Request(url, headers={"Accept": accept})
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS_MAX) as answer:
                found: dict[str, Any] = json.load(answer)
        except urllib.error.HTTPError as refusal:
            raise AssertionError(f"GET {path}: {refusal.code} {refusal.read().decode()}") from refusal
        return found

    def rows(self, path: str, **query: str) -> list[dict[str, Any]]:
        """Return the cells of a list as `kubectl get -o wide` prints them, by the names of the columns."""
        table = self(path, TABLE, **query, includeObject="None")
        columns = [column["name"] for column in table["columnDefinitions"]]
        return [dict(zip(columns, row["cells"], strict=True)) for row in table["rows"]]
