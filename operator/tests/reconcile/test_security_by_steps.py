"""An open Cluster is secured by an edit, over an API server in memory."""

from barnabas_operator.kube.gather import REVISION
from barnabas_operator.planning.object_names import SECURITY_STAGE
from barnabas_operator.resources.kind import JsonObject
from harness.worker_world import World, of_broker, resource

PLAIN: JsonObject = {"name": "plain"}
SAFE: JsonObject = {"name": "safe", "port": 9094, "tls": True, "authentication": {"type": "scram-sha-512"}}
ROUNDS_MAX = 20
STEPS = ["OfferingTls", "UsingTls", "ClosingPlaintext", "SecurityChanged"]


def declare(here: World, *listeners: JsonObject) -> None:
    before = here.api.found("Cluster", "one") or {"metadata": {"generation": 0}}
    meta = {"name": "one", "generation": before["metadata"]["generation"] + 1}
    declared = resource("Cluster", "one", listeners=list(listeners))
    here.api.put({**before, **declared, "metadata": {**declared["metadata"], **meta}})


def stage_of_template(here: World) -> str:
    made = here.api.found("StatefulSet", "one-broker") or {}
    annotations: dict[str, str] = made["spec"]["template"]["metadata"].get("annotations", {})
    return annotations.get(SECURITY_STAGE, "")


def kubernetes_works(here: World) -> str:
    """Let the controller of StatefulSets make the pod, and return the stage that it has now."""
    stage = stage_of_template(here)
    here.kubernetes_saw(f"new{stage}")
    if here.api.found("Pod", "one-broker-0") is None:
        pod = of_broker(0)
        pod["metadata"]["labels"][REVISION] = f"new{stage}"
        pod["metadata"]["annotations"] = {SECURITY_STAGE: stage} if stage else {}
        here.api.put(pod)
    made = here.api.found("Pod", "one-broker-0") or {}
    here.worker.object_event(made, is_gone=False)
    return str(made["metadata"].get("annotations", {}).get(SECURITY_STAGE, ""))


async def settled(here: World, stage: str) -> list[str]:
    """Return the stages of the pod, one after the other, until nothing changes."""
    seen: list[str] = []
    for _ in range(ROUNDS_MAX):
        now = kubernetes_works(here)
        seen += [] if seen[-1:] == [now] else [now]
        await here.round()
        status = (here.api.found("Cluster", "one") or {}).get("status", {})
        if now == stage_of_template(here) == status.get("securityStage", "") == stage:
            return seen
    raise AssertionError(f"the pod had the stages {seen}, and the Cluster says {here.said('Cluster', 'one')}")


def stored(here: World) -> JsonObject:
    return here.api.found("Cluster", "one") or {}


async def test_a_cluster_is_secured_by_default_and_names_the_secret_of_its_administrator(
    here: World,
) -> None:
    here.api.put(resource("Cluster", "one", insecure=False))
    await here.round()
    assert await settled(here, "Secured") == ["Secured"]
    await here.round()
    assert here.brokers.passwords == {"admin": "a" * 32}
    status = stored(here)["status"]
    assert (status["security"], status["administrator"]) == ("Secured", "one-admin")
    assert [each["name"] for each in status["listeners"]] == ["secure"]
    assert (
        "Secret one-admin holds client.properties, with which clients connect as the user admin"
        in dict(here.api.events()).values()
    )


async def test_an_open_cluster_of_an_older_release_is_marked_insecure_once_without_a_restart(here: World) -> None:
    declare(here, PLAIN)
    await here.round()
    assert await settled(here, "") == [""]
    template = (here.api.found("StatefulSet", "one-broker") or {})["spec"]["template"]
    status = {name: value for name, value in stored(here)["status"].items() if name != "security"}
    here.api.put({**resource("Cluster", "one", insecure=False, listeners=[PLAIN]), "status": status})
    here.api.writes.clear()
    await here.round()
    await here.round()
    assert stored(here)["spec"]["insecure"] is True
    assert stored(here)["status"]["security"] == "Insecure"
    written = [each for each in here.api.writes if each.endswith("clusters/one")]
    assert written == here.api.writes[:1]
    assert (here.api.found("StatefulSet", "one-broker") or {})["spec"]["template"] == template
    assert [reason for reason, _ in here.api.events()].count("MarkedInsecure") == 1


async def test_a_new_cluster_with_an_open_listener_is_refused_and_not_marked_insecure(here: World) -> None:
    here.api.put(resource("Cluster", "one", insecure=False, listeners=[PLAIN]))
    for _ in range(2):
        await here.round()
        assert here.said("Cluster", "one")[:2] == ("False", "InvalidConfig")
    assert here.api.found("StatefulSet", "one-broker") is None
    assert stored(here)["spec"]["insecure"] is False


async def test_an_edit_secures_a_cluster_in_three_reported_restarts_of_each_broker(here: World) -> None:
    declare(here, PLAIN)
    await here.round()
    assert await settled(here, "") == [""]
    here.api.writes.clear()
    declare(here, PLAIN, SAFE)
    assert await settled(here, "Secured") == ["", "Offered", "Used", "Secured"]
    written = [each for each in here.api.writes if "?dryRun" not in each]
    first = next(at for at, each in enumerate(written) if each.endswith("statefulsets/one-broker"))
    assert any(each.endswith("secrets/one-broker-certificates") for each in written[:first])
    assert [reason for reason, _ in here.api.events() if reason in STEPS] == STEPS
    assert here.brokers.passwords == {"admin": "a" * 32}
