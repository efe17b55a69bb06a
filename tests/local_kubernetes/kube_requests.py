"""Asks an API server often, without a process of kubectl for each request."""

import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPSConnection
from typing import Final
from urllib.parse import urlencode, urlsplit

from barnabas_operator.kube.api import APPLY, MERGE, NOT_FOUND, path_of
from barnabas_operator.resources.kind import JsonObject
from harness.deadline import PATIENCE_S

JSON: Final = "application/json"
REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
EVERYBODY: Final = "system:authenticated"
REFUSED: Final = 300
"""The lowest status of a refusal."""


@dataclass(frozen=True, slots=True)
class KubeRequests:
    """A client with the rights of the administrator.

    Every method raises AssertionError with the API server's refusal.
    """

    url: str
    token: str
    trust: ssl.SSLContext
    idle: list[HTTPSConnection] = field(default_factory=list)
    """The connections that stay open: a new one costs both sides more than a request."""

    def get(self, kind: str, namespace: str | None, name: str) -> JsonObject | None:
        """Return the object; None if it is gone."""
        return self._json("GET", path_of(kind, namespace, name))

    def listing(
        self,
        kind: str,
        namespace: str,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> list[JsonObject]:
        """Return all objects with these labels, and with these fields by their paths."""
        chosen = {"labelSelector": _chosen(labels or {}), "fieldSelector": _chosen(fields or {})}
        found = self._json("GET", f"{path_of(kind, namespace)}?{urlencode(chosen)}")
        return found["items"] if found is not None else []

    def create(self, item: JsonObject) -> None:
        """Create an object."""
        self._json("POST", path_of(item["kind"], item["metadata"].get("namespace")), item)

    def apply(self, item: JsonObject) -> None:
        """Apply `item`, and remove other fields that were applied before."""
        meta = item["metadata"]
        query = urlencode({"fieldManager": "tests", "force": "true", "fieldValidation": "Strict"})
        self._json("PATCH", f"{path_of(item['kind'], meta.get('namespace'), meta['name'])}?{query}", item, APPLY)

    def refusal(self, item: JsonObject) -> str:
        """Return the refusal of an object, new or in place of another; an empty text if it was stored."""
        kind, meta = item["kind"], item["metadata"]
        there = self.get(kind, meta["namespace"], meta["name"])
        method, name, sent = "POST", None, item
        if there is not None:
            method, name, sent = "PUT", meta["name"], {**item, "metadata": there["metadata"]}
        path = f"{path_of(kind, meta['namespace'], name)}?fieldValidation=Strict"
        status, found = self._answer(method, path, json.dumps(sent).encode(), self._headers(JSON))
        return "" if status < REFUSED else str(json.loads(found)["message"])

    def may(self, user: str, namespace: str, verb: str, resource: str, name: str = "") -> bool:
        """True if a user, or a service account by its full name, has a right, as to `deployments.apps/scale`."""
        whole, _, part = resource.partition("/")
        plural, _, group = whole.partition(".")
        accounts = ["system:serviceaccounts", f"system:serviceaccounts:{user.split(':')[2]}"] if ":" in user else []
        what = {"resource": plural, "group": group, "subresource": part, "name": name}
        spec = {
            "user": user,
            "groups": [EVERYBODY, *accounts],
            "resourceAttributes": {"namespace": namespace, "verb": verb, **what},
        }
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        answer = self._json("POST", REVIEWS, review)
        return answer is not None and bool(answer["status"]["allowed"])

    def merge_status(self, kind: str, namespace: str | None, name: str, status: JsonObject) -> None:
        """Change the status, as a controller of Kubernetes does."""
        self._json("PATCH", f"{path_of(kind, namespace, name)}/status", {"status": status}, MERGE)

    def delete(self, kind: str, namespace: str | None, name: str) -> None:
        """Delete an object without waiting for finalizers."""
        self._json("DELETE", path_of(kind, namespace, name))

    def text(self, path: str) -> str:
        """Return a page, such as `/metrics`."""
        return self._ask("GET", path, None, JSON).decode()

    def _json(
        self, method: str, path: str, body: JsonObject | None = None, content_type: str = JSON
    ) -> JsonObject | None:
        answer = self._ask(method, path, body, content_type)
        found: JsonObject | None = json.loads(answer) if answer else None
        return found

    def _ask(self, method: str, path: str, body: JsonObject | None, content_type: str) -> bytes:
        """Return the answer; empty if there is no such object."""
        sent = json.dumps(body).encode() if body is not None else None
        status, found = self._answer(method, path, sent, self._headers(content_type))
        if method == "GET" and status == NOT_FOUND:
            return b""
        assert status < REFUSED, f"{method} {path}: {found.decode(errors='replace')}"
        return found

    def _headers(self, content_type: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}", "Accept": "*/*", "Content-Type": content_type}

    def _answer(self, method: str, path: str, sent: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
        """Return the answer on an idle connection, or on a new one if idle ones have ended."""
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
