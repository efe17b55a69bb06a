"""What is said of a Cluster's pods before it is stored, with an API server that answers one thing."""

import asyncio
from typing import Any

import pytest

from barnabas_kube.client import ApiClient
from barnabas_operator.admission.dry_run import DryRun
from barnabas_operator.kube.api import KubeApi, KubeRefused, KubeUnreachable
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.object_meta import ObjectMeta
from harness.kube_memory import no_server

CLUSTER = Cluster(metadata=ObjectMeta(name="flights", namespace="air", uid="u"))
INVALID = 'StatefulSet.apps "flights-broker" is invalid: spec.template.spec.tolerations[0].key: Invalid value: "a b"'
STRICT = 'StatefulSet in version "v1" is none: strict decoding error: unknown field "spec.template.spec.affinity.x"'


class OneAnswer(KubeApi):
    """There are no claims. `answer` to the one other request, whatever it is; `asked` is what it was asked."""

    def __init__(self, connection: ApiClient, answer: Exception | None) -> None:
        super().__init__(connection)
        self._answer = answer
        self.asked: list[tuple[str, str, Any]] = []

    async def request(self, method: str, path: str, **given: Any) -> dict[str, Any]:
        if path.endswith("/persistentvolumeclaims"):
            return {"items": []}
        self.asked.append((method, path, given["query"]))
        if self._answer is not None:
            raise self._answer
        return {}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, None),
        (KubeRefused(422, "Invalid", INVALID), 'spec.template.pod.spec.tolerations[0].key: Invalid value: "a b"'),
        (KubeRefused(400, "BadRequest", STRICT), 'unknown field "spec.template.pod.spec.affinity.x"'),
        (KubeRefused(409, "AlreadyExists", "it is there"), None),
        (KubeRefused(403, "Forbidden", "no such right"), None),
        (KubeUnreachable("not now"), None),
    ],
)
def test_only_what_the_api_server_finds_wrong_is_an_objection(answer: Exception | None, said: str | None) -> None:
    async def run() -> None:
        async with no_server() as connection:
            api = OneAnswer(connection, answer)
            assert await DryRun(api, "image")(CLUSTER) == said
            assert api.asked == [
                (
                    "POST",
                    "/apis/apps/v1/namespaces/air/statefulsets",
                    {"dryRun": "All", "fieldValidation": "Strict"},
                )
            ]

    asyncio.run(run())
