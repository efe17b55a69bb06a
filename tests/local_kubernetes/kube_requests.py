"""What tests ask of an API server again and again, without a process of kubectl for each."""

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from barnabas_operator.kube.api import APPLY, MERGE, NOT_FOUND
from barnabas_operator.kube.api_resources import path_of
from barnabas_operator.resources.json_types import JsonObject
from harness.deadline import PATIENCE_S

JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class KubeRequests:
    """As the cluster's administrator. Every method raises AssertionError with what the API server says against it."""

    url: str
    token: str
    trust: ssl.SSLContext

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
        request = urllib.request.Request(self.url + path, sent, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S, context=self.trust) as answer:
                found: bytes = answer.read()
                return found
        except urllib.error.HTTPError as refusal:
            if method == "GET" and refusal.code == NOT_FOUND:
                return b""
            raise AssertionError(f"{method} {path}: {refusal.read().decode(errors='replace')}") from refusal


def _chosen(values: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in values.items())
