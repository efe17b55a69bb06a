"""What tests ask of an API server again and again, without a process of kubectl for each."""

import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPSConnection
from typing import Final
from urllib.parse import urlencode, urlsplit

from barnabas_operator.kube.api import APPLY, MERGE, NOT_FOUND
from barnabas_operator.kube.api_resources import path_of
from barnabas_operator.resources.json_types import JsonObject
from harness.deadline import PATIENCE_S

JSON: Final = "application/json"
REFUSED: Final = 300
"""And above: the status of what is no answer."""


@dataclass(frozen=True, slots=True)
class KubeRequests:
    """As the cluster's administrator. Every method raises AssertionError with what the API server says against it."""

    url: str
    token: str
    trust: ssl.SSLContext
    idle: list[HTTPSConnection] = field(default_factory=list)
    """Connections that stay: a new one costs both sides more than a request."""

    def get(self, kind: str, namespace: str | None, name: str) -> JsonObject | None:
        """The object; None where it is gone."""
        return self._json("GET", path_of(kind, namespace, name))

    def listing(
        self,
        kind: str,
        namespace: str,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> list[JsonObject]:
        """All objects with these labels, and these fields by their paths."""
        chosen = {"labelSelector": _chosen(labels or {}), "fieldSelector": _chosen(fields or {})}
        found = self._json("GET", f"{path_of(kind, namespace)}?{urlencode(chosen)}")
        return found["items"] if found is not None else []

    def create(self, item: JsonObject) -> None:
        """A new object."""
        self._json("POST", path_of(item["kind"], item["metadata"].get("namespace")), item)

    def apply(self, item: JsonObject) -> None:
        """What is in `item`, and nothing else that was applied before."""
        meta = item["metadata"]
        query = urlencode({"fieldManager": "tests", "force": "true", "fieldValidation": "Strict"})
        self._json("PATCH", f"{path_of(item['kind'], meta.get('namespace'), meta['name'])}?{query}", item, APPLY)

    def merge_status(self, kind: str, namespace: str, name: str, status: JsonObject) -> None:
        """As a controller of Kubernetes tells it."""
        self._json("PATCH", f"{path_of(kind, namespace, name)}/status", {"status": status}, MERGE)

    def delete(self, kind: str, namespace: str, name: str) -> None:
        """Does not wait for finalizers."""
        self._json("DELETE", path_of(kind, namespace, name))

    def text(self, path: str) -> str:
        """A page, such as `/metrics`."""
        return self._ask("GET", path, None, JSON).decode()

    def _json(
        self, method: str, path: str, body: JsonObject | None = None, content_type: str = JSON
    ) -> JsonObject | None:
        answer = self._ask(method, path, body, content_type)
        found: JsonObject | None = json.loads(answer) if answer else None
        return found

    def _ask(self, method: str, path: str, body: JsonObject | None, content_type: str) -> bytes:
        """Nothing where there is no such object."""
        headers = {"Authorization": f"Bearer {self.token}", "Accept": "*/*", "Content-Type": content_type}
        sent = json.dumps(body).encode() if body is not None else None
        status, found = self._answer(method, path, sent, headers)
        if method == "GET" and status == NOT_FOUND:
            return b""
        assert status < REFUSED, f"{method} {path}: {found.decode(errors='replace')}"
        return found

    def _answer(self, method: str, path: str, sent: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
        """On a connection that is idle, or on a new one where those have ended meanwhile."""
        while True:
            kept = self._kept()
            connection = kept or self._new()
            try:
                connection.request(method, path, sent, headers)
                with connection.getresponse() as answer:
                    told = answer.status, answer.read()
            except (OSError, HTTPException):
                connection.close()
                if kept is None:
                    raise
            else:
                self.idle.append(connection)
                return told

    def _kept(self) -> HTTPSConnection | None:
        try:
            return self.idle.pop()
        except IndexError:  # Other threads ask, too.
            return None

    def _new(self) -> HTTPSConnection:
        at = urlsplit(self.url)
        return HTTPSConnection(str(at.hostname), at.port, timeout=PATIENCE_S, context=self.trust)


def _chosen(values: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in values.items())
