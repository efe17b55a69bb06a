"""Actions that change something: manifests that are applied again, right and wrong ones, and commands of kubectl."""

import json
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka.admin import ConfigResource, ResourceType

from barnabas_operator.resources.kind import JsonObject
from e2e.pods.castle import BROKERS, NAME, POLL_S
from e2e.weeks.action import Action
from e2e.weeks.site import Site
from e2e.weeks.tenant import BROKERS_MAX, BUSY, SECONDS_MAX, Tenant, changed
from harness.deadline import wait_for

LIBRARY: Final = "docker.io/library/"
RESTART: Final = "barnabas.dev/manual-rolling-update=true"
REBALANCE: Final = "barnabas.dev/rebalance"
KNOWN_SECONDS_MAX: Final = 60.0


@contextmanager
def restarts(tenant: Tenant) -> Iterator[None]:
    """Check that every broker has another pod at the end."""
    before = tenant.castle.pods()
    yield
    tenant.castle.await_new_pods(before)


@contextmanager
def restarts_none(tenant: Tenant) -> Iterator[None]:
    """Check that the same pods exist when all is as declared."""
    before = tenant.castle.pods()
    yield
    tenant.await_ready()
    assert tenant.castle.pods() == before, "no broker was to restart"


def _new_topic(site: Site, tenant: Tenant, chance: random.Random) -> None:
    with restarts_none(tenant):
        tenant.add_topic(f"topic-{len(tenant.topics)}", chance.randint(1, 6))


def _more_partitions(site: Site, tenant: Tenant, chance: random.Random) -> None:
    spec = tenant.topics[BUSY]["spec"]
    spec["partitions"] += 1
    with restarts_none(tenant):
        tenant.apply()
    assert tenant.partitions(BUSY) == spec["partitions"]


def _topic_config(site: Site, tenant: Tenant, chance: random.Random) -> None:
    wanted = str(chance.randrange(10**9, 2 * 10**9))
    tenant.topics[BUSY]["spec"]["config"] = {"retention.ms": wanted}
    with restarts_none(tenant):
        tenant.apply()
    assert tenant.config(ConfigResource(ResourceType.TOPIC, BUSY), "retention.ms") == wanted


def _topic_again(site: Site, tenant: Tenant, chance: random.Random) -> None:
    """Delete the Topic and apply it again: its topic stays (`Retain`), and is adopted."""
    name = chance.choice(sorted(tenant.topics))
    with restarts_none(tenant):
        tenant.castle.kubectl("delete", "topic", name)
        tenant.apply()


def _wrong(tenant: Tenant) -> Mapping[str, JsonObject]:
    topic, cluster = tenant.topics[BUSY], tenant.manifest
    volumes = cluster["spec"]["storage"]["volumes"]
    return {
        "fewer partitions": changed(topic, partitions=1),
        "more replicas than brokers": changed(topic, replicas=9),
        "a config that is none": changed(topic, config={"no.such.setting": "1"}),
        "a config of a wrong type": changed(topic, config={"segment.bytes": "many"}),
        "a field that is none": changed(topic, partitons=6),
        "no brokers": changed(cluster, brokers={"replicas": 0}),
        "a disk that shrinks": changed(cluster, storage={"volumes": [{**volumes[0], "size": "1Mi"}, *volumes[1:]]}),
        "a disk less": changed(cluster, storage={"volumes": [{"id": 99, "size": "1Gi"}]}),
        "a broker config of a wrong type": changed(cluster, config={"min.insync.replicas": "many"}),
    }


def _wrong_manifests(site: Site, tenant: Tenant, chance: random.Random) -> None:
    """Apply wrong manifests: each is refused, and changes nothing."""
    before = _specs(tenant)
    with restarts_none(tenant):
        for what, manifest in _wrong(tenant).items():
            # The operator that came last may not serve its webhook yet: then the manifest would be stored, and told of.
            await_refusal(tenant, manifest)
            done = tenant.castle.ask("apply", "-f-", stdin=json.dumps(manifest))
            assert done.returncode != 0, f"{what} was taken: {done.stdout}"
    assert _specs(tenant) == before


def await_refusal(tenant: Tenant, manifest: JsonObject) -> None:
    """Return when a dry run of the manifest is refused."""
    ask = ("apply", "--dry-run=server", "-f-")
    wait_for(
        lambda: tenant.castle.ask(*ask, stdin=json.dumps(manifest)).returncode,
        lambda code: code != 0,
        SECONDS_MAX,
    )


def _specs(tenant: Tenant) -> dict[str, Any]:
    found = json.loads(tenant.castle.kubectl("get", "clusters.barnabas.dev,topics.barnabas.dev", "-ojson"))
    return {f"{each['kind']}/{each['metadata']['name']}": each["spec"] for each in found["items"]}


def _config_that_restarts(site: Site, tenant: Tenant, chance: random.Random) -> None:
    key = "group.initial.rebalance.delay.ms"
    tenant.spec["config"][key] = int(tenant.spec["config"].get(key, 0)) + 1
    with restarts(tenant):
        tenant.apply()


def _config_that_restarts_none(site: Site, tenant: Tenant, chance: random.Random) -> None:
    wanted = chance.randrange(10**9, 2 * 10**9)
    tenant.spec["config"]["log.retention.ms"] = wanted
    brokers = [ConfigResource(ResourceType.BROKER, str(number)) for number in range(BROKERS)]
    with restarts_none(tenant):
        tenant.apply()
        wait_for(
            lambda: {tenant.config(each, "log.retention.ms") for each in brokers},
            lambda told: told == {str(wanted)},
            KNOWN_SECONDS_MAX,
        )


def _resources(site: Site, tenant: Tenant, chance: random.Random) -> None:
    requests = tenant.spec["brokers"]["resources"]["requests"]
    requests["cpu"] = "90m" if requests["cpu"] == "100m" else "100m"
    with restarts(tenant):
        tenant.apply()


def _image(site: Site, tenant: Tenant, chance: random.Random) -> None:
    """Name the same image by another name."""
    now = tenant.castle.pod_items()[0]["spec"]["containers"][0]["image"]
    tenant.spec["brokers"]["image"] = now.removeprefix(LIBRARY) if now.startswith(LIBRARY) else LIBRARY + now
    with restarts(tenant):
        tenant.apply()


def _rollout_restart(site: Site, tenant: Tenant, chance: random.Random) -> None:
    with restarts(tenant):
        tenant.castle.kubectl("rollout", "restart", f"statefulset/{tenant.castle.name}-broker")


def _restart_one(site: Site, tenant: Tenant, chance: random.Random) -> None:
    before = tenant.castle.pods()
    chosen = chance.choice(sorted(before))
    tenant.castle.kubectl("annotate", "pod", chosen, RESTART)
    wait_for(
        lambda: tenant.castle.pods().get(chosen, ""), lambda uid: uid not in ("", before[chosen]), SECONDS_MAX, POLL_S
    )
    tenant.await_ready()
    assert {name for name, uid in tenant.castle.pods().items() if uid != before[name]} == {chosen}


def _scale_and_back(site: Site, tenant: Tenant, chance: random.Random) -> None:
    """Add a broker, and remove it again: it gets replicas, so it must be emptied first."""
    tenant.scale(BROKERS_MAX)
    tenant.add_topic(f"topic-{len(tenant.topics)}", 8)
    tenant.scale(BROKERS)


def _rebalance(site: Site, tenant: Tenant, chance: random.Random) -> None:
    """Add a broker, which gets its share of the existing partitions, and remove it again."""
    tenant.scale(BROKERS_MAX)
    assert BROKERS not in tenant.brokers_of(BUSY)
    with restarts_none(tenant):
        tenant.castle.kubectl("annotate", "clusters.barnabas.dev", NAME, f"{REBALANCE}=approve")
        wait_for(lambda: _annotations(tenant), lambda found: REBALANCE not in found, SECONDS_MAX, POLL_S)
    assert BROKERS in tenant.brokers_of(BUSY, *tenant.topics)
    tenant.scale(BROKERS)


def _annotations(tenant: Tenant) -> Mapping[str, str]:
    found: Mapping[str, str] = tenant.castle.read("cluster", NAME)["metadata"]["annotations"]
    return found


def _one_more_disk(site: Site, tenant: Tenant, chance: random.Random) -> None:
    volumes = tenant.spec["storage"]["volumes"]
    volumes.append({"id": len(volumes), "size": "1Gi"})
    with restarts(tenant):
        tenant.apply()


def _growing_volume(site: Site, tenant: Tenant, chance: random.Random) -> None:
    """Grow a volume. The storage of these tests cannot do that by itself, so the test does its part."""
    volume = tenant.spec["storage"]["volumes"][0]
    volume["size"] = size = f"{int(volume['size'].removesuffix('Gi')) + 1}Gi"
    claims = [f"volume-0-{tenant.castle.name}-broker-{number}" for number in range(BROKERS)]
    tenant.apply()  # Brokers restart once more if an annotation of `kubectl rollout restart` is lost.
    for claim in claims:
        _grow(site, tenant, claim, size)
    tenant.await_ready()


def _grow(site: Site, tenant: Tenant, claim: str, size: str) -> None:
    path = "-ojsonpath={.spec.resources.requests.storage} {.spec.volumeName}"
    asked = wait_for(
        lambda: tenant.castle.kubectl("get", "pvc", claim, path), lambda found: found.split()[0] == size, SECONDS_MAX
    )
    capacity = {"capacity": {"storage": size}}
    site.kubectl("patch", "pv", asked.split()[1], "--type=merge", "-p", json.dumps({"spec": capacity}))
    status = json.dumps({"status": capacity})
    tenant.castle.kubectl("patch", "pvc", claim, "--subresource=status", "--type=merge", "-p", status)


CHANGES: Final = {
    "a new Topic": Action(_new_topic),
    "more partitions": Action(_more_partitions),
    "another config of a topic": Action(_topic_config),
    "a Topic is deleted and applied again": Action(_topic_again),
    "wrong manifests": Action(_wrong_manifests),
    "a broker config that restarts": Action(_config_that_restarts),
    "a broker config that restarts none": Action(_config_that_restarts_none),
    "other resources": Action(_resources),
    "another name of the image": Action(_image),
    "kubectl rollout restart": Action(_rollout_restart),
    "the annotation that restarts a broker": Action(_restart_one),
    "from three brokers to four and back": Action(_scale_and_back),
    "a rebalance onto a new broker": Action(_rebalance),
    "one more disk": Action(_one_more_disk, moves_disks=True),
    "a volume grows": Action(_growing_volume),
}
