"""The meaning of an API server's response: it refuses the request, or it cannot answer now."""

import json
from typing import Any

import pytest

from barnabas_kube.access import Access
from barnabas_kube.client import Answer, ApiClient, NoAnswer
from barnabas_operator.kube.api import KubeApi, KubeRefused, KubeUnreachable

TWO_BUDGETS = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
USED_UP = "The disruption budget main-broker needs 2 healthy pods and has 2 currently"
NOBODY = Access("http://127.0.0.1:1", None, lambda: None)


class Answering(ApiClient):
    """A client that gets the same response to each request."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(NOBODY, "tests")
        self.answer = answer

    async def request(self, *_: Any, **__: Any) -> Answer:
        return self.answer


async def evict(status: int, message: str, *causes: str) -> None:
    details = {"causes": [{"reason": cause, "message": message} for cause in causes]}
    said = json.dumps({"message": message, "reason": "Why", "details": details}).encode()
    async with Answering(Answer(status, said)) as client:
        await KubeApi(client).evict("air", "main-broker-1", "u")


@pytest.mark.parametrize(("status", "said", "causes"), [(429, USED_UP, ["DisruptionBudget"]), (500, TWO_BUDGETS, [])])
async def test_an_eviction_that_disruption_budgets_forbid_is_a_refusal(
    status: int, said: str, causes: list[str]
) -> None:
    with pytest.raises(KubeRefused) as refused:
        await evict(status, said, *causes)
    assert (refused.value.status, refused.value.message) == (429, said)


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_an_overloaded_api_server_counts_as_unreachable(status: int) -> None:
    asked = f"POST /api/v1/namespaces/air/pods/main-broker-1/eviction: {status} the server has asked"
    with pytest.raises(KubeUnreachable, match=asked):
        await evict(status, "the server has asked for the client to provide less")


async def test_an_eviction_of_a_missing_pod_succeeds() -> None:
    await evict(404, "pods not found")


async def test_the_error_about_an_unreachable_api_server_names_the_request() -> None:
    with pytest.raises(
        KubeUnreachable, match=r"GET http://127\.0\.0\.1:1/api/v1/namespaces/air/pods/main-broker-1: Cannot connect"
    ):
        async with ApiClient(NOBODY, "tests") as client:
            await KubeApi(client).get("Pod", "air", "main-broker-1")


NOT_OF_THE_KIND = "failed to create typed patch object (air/main-lag-exporter; apps/v1, Kind=Deployment): "


@pytest.mark.parametrize(
    "wrong",
    [
        ".spec.paused: field not declared in schema",
        '.spec.template.spec.tolerations: expected list, got &{"a"}',
        'errors:\n  .spec.template.spec.volumes: duplicate entries for key [name="a"]',
    ],
)
async def test_an_object_that_violates_its_schema_is_refused_even_if_the_status_is_500(wrong: str) -> None:
    with pytest.raises(KubeRefused, match="main-lag-exporter") as refused:
        await evict(500, NOT_OF_THE_KIND + wrong)
    assert refused.value.is_about_the_object


async def test_a_closed_client_reports_that_it_is_closed() -> None:
    """The reader of a stream then retries, as if the API server were unreachable."""
    client = ApiClient(NOBODY, "tests")
    await client.close()
    with pytest.raises(NoAnswer, match="client of the Kubernetes API is closed"):
        await client.request("GET", "/api", timeout_s=1)
    with pytest.raises(NoAnswer, match="client of the Kubernetes API is closed"):
        await anext(client.stream("/api", {}))
