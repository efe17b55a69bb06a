"""Actions that delete something, by mistake or on purpose, and apply it again if Barnabas cannot know it."""

import random
from typing import Final

from e2e.pods.castle import BROKERS, POLL_S
from e2e.pods.comes_back import await_another, delete, uid
from e2e.weeks.action import Action, Down
from e2e.weeks.changes import await_refusal, restarts, restarts_none
from e2e.weeks.site import CRDS, Site
from e2e.weeks.tenant import BROKERS_MAX, BUSY, SECONDS_MAX, Tenant, changed
from harness.deadline import wait_for

LABEL: Final = "barnabas.dev/cluster"
AROUND: Final = ("poddisruptionbudget", "rolebinding", "networkpolicy")
DOCUMENTS: Final = "statedocuments.internal.barnabas.dev"


def _owned(tenant: Tenant, kind: str) -> list[str]:
    found = tenant.castle.kubectl("get", kind, f"-l{LABEL}={tenant.castle.name}", "-oname").split()
    return [name.partition("/")[2] for name in found]


def _stateful_set(site: Site, tenant: Tenant, chance: random.Random) -> None:
    """Delete the StatefulSet: Kubernetes deletes its pods, too."""
    name = f"{tenant.castle.name}-broker"
    delete(tenant.castle, "statefulset", name)
    all_of_it = {uid(tenant.castle, "statefulset", name)}
    wait_for(
        lambda: _owners_of_pods(tenant),
        lambda now: set(now) == all_of_it and len(now) == tenant.castle.brokers,
        SECONDS_MAX,
        POLL_S,
    )


def _owners_of_pods(tenant: Tenant) -> list[str]:
    """Return the uids of the controllers of the pods."""
    owners = [each for pod in tenant.castle.pod_items() for each in pod["metadata"].get("ownerReferences", ())]
    return [each["uid"] for each in owners if each.get("controller")]


def _stateful_set_without_pods(site: Site, tenant: Tenant, chance: random.Random) -> None:
    delete(tenant.castle, "statefulset", f"{tenant.castle.name}-broker", cascade="orphan")
    tenant.await_ready()


def _services(site: Site, tenant: Tenant, chance: random.Random) -> None:
    """Delete the Services one after the other: clients outside find the same addresses again."""
    before = tenant.castle.bootstrap
    with restarts_none(tenant):
        for name in _owned(tenant, "service"):
            delete(tenant.castle, "service", name)
        wait_for(lambda: tenant.castle.bootstrap, lambda now: now == before, SECONDS_MAX)


def _config_maps(site: Site, tenant: Tenant, chance: random.Random) -> None:
    with restarts_none(tenant):
        delete(tenant.castle, "configmap", *_owned(tenant, "configmap"))


def _around(site: Site, tenant: Tenant, chance: random.Random) -> None:
    with restarts_none(tenant):
        for kind in AROUND:
            delete(tenant.castle, kind, *_owned(tenant, kind))
    tenant.add_topic(f"topic-{len(tenant.topics)}", 1)


def _service_account(site: Site, tenant: Tenant, chance: random.Random) -> None:
    """Delete the ServiceAccount: the tokens of the running pods become void, so all of them restart."""
    with restarts(tenant):
        delete(tenant.castle, "serviceaccount", *_owned(tenant, "serviceaccount"))
    tenant.await_ready()
    tenant.add_topic(f"topic-{len(tenant.topics)}", 1)


def _secret(site: Site, tenant: Tenant, chance: random.Random) -> None:
    """Delete the Secret of the webhook: helm makes another one."""
    site.operator("delete", "secret", "barnabas-operator-webhook")
    site.release("upgrade")
    await_refusal(tenant, changed(tenant.topics[BUSY], config={"no.such.setting": "1"}))


def _disks(site: Site, tenant: Tenant, chance: random.Random) -> None:
    """Delete all disks of one broker, as `docs/how-to/recover.md` says."""
    pod = f"{tenant.castle.name}-broker-{chance.randrange(BROKERS)}"
    claims = [f"volume-{each['id']}-{pod}" for each in tenant.spec["storage"]["volumes"]]
    before = {claim: uid(tenant.castle, "pvc", claim) for claim in claims}
    tenant.castle.kubectl("delete", "pvc", *claims, "--wait=false")
    tenant.castle.kubectl("delete", "pod", pod)
    for claim, was in before.items():
        await_another(tenant.castle, "pvc", claim, was)


def _state_documents(site: Site, tenant: Tenant, chance: random.Random) -> None:
    """Delete all state documents of the namespace.

    Brokers write the ends of their logs again in their own time, so the action does not wait for these.
    """
    before = _topic_documents(tenant)
    with restarts_none(tenant):
        tenant.castle.kubectl("delete", DOCUMENTS, "--all")
        wait_for(lambda: _topic_documents(tenant), lambda now: now >= before, SECONDS_MAX)
    tenant.add_topic(f"topic-{len(tenant.topics)}", 1)


def _topic_documents(tenant: Tenant) -> set[str]:
    found = tenant.castle.kubectl("get", DOCUMENTS, f"-l{LABEL}={tenant.castle.name}", "-oname").split()
    return {name for name in found if ".topics." in name}


def _label(site: Site, tenant: Tenant, chance: random.Random) -> None:
    before = _topic_documents(tenant)
    chosen = chance.choice(sorted(before))
    with restarts_none(tenant):
        tenant.castle.kubectl("label", chosen, f"{LABEL}-")
        wait_for(lambda: _topic_documents(tenant), lambda now: now >= before, SECONDS_MAX)


def _definitions(site: Site, tenant: Tenant, chance: random.Random) -> None:
    """Delete the CRDs with all Clusters, Topics and metadata, apply all again at once, and restore the metadata."""
    site.kubectl("delete", "-f", str(CRDS))
    # helm will have them again with its next upgrade, so they are applied as helm's.
    site.kubectl("apply", "--server-side", "--field-manager=helm", "-f", str(CRDS))
    wait_for(lambda: site.kubectl.ask("get", "clusters.barnabas.dev,topics.barnabas.dev").returncode == 0)
    site.apply()
    for each in site.tenants:
        each.restore_metadata()


def _cluster_again(site: Site, tenant: Tenant, chance: random.Random) -> None:
    _delete_cluster(tenant)
    tenant.apply()


def _cluster_again_with_fewer(site: Site, tenant: Tenant, chance: random.Random) -> None:
    """Delete a Cluster of four and make it again with three: the fourth broker starts, too, is emptied and removed."""
    tenant.scale(BROKERS_MAX)
    tenant.add_topic(f"topic-{len(tenant.topics)}", 8)
    _delete_cluster(tenant)
    tenant.spec["brokers"]["replicas"] = BROKERS
    tenant.apply()
    tenant.await_pods(BROKERS_MAX)
    tenant.scale(BROKERS)


def _delete_cluster(tenant: Tenant) -> None:
    """Delete the Cluster. Its disks stay (`Retain`)."""
    tenant.castle.kubectl("delete", "clusters.barnabas.dev", tenant.castle.name)
    tenant.await_pods(0)


DELETIONS: Final = {
    "the StatefulSet is deleted with its pods": Action(_stateful_set, Down.ONE),
    "the StatefulSet is deleted without its pods": Action(_stateful_set_without_pods),
    "each Service is deleted": Action(_services),
    "ConfigMaps are deleted": Action(_config_maps),
    "PodDisruptionBudget, RoleBinding and NetworkPolicy are deleted": Action(_around),
    "the ServiceAccount is deleted": Action(_service_account, Down.ONE),
    "the Secret of the webhook is deleted": Action(_secret, is_long=True),
    "the claims of a broker are deleted with its pod": Action(_disks, moves_disks=True),
    "kubectl delete sdoc --all": Action(_state_documents),
    "a state document loses its label": Action(_label),
    "kubectl delete -f helm/barnabas/crd-files/, and all is applied again": Action(_definitions, Down.ALL),
    "a Cluster is deleted and made again": Action(_cluster_again, Down.ONE),
    "a Cluster of four is deleted and made again with three": Action(_cluster_again_with_fewer, Down.ONE, is_long=True),
}
