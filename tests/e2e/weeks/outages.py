"""Actions that take down brokers, the operator or parts of Kubernetes."""

import random
import time
from functools import partial
from typing import Final

from e2e.pods.castle import POLL_S
from e2e.pods.under_traffic import KILL_SECONDS_MAX
from e2e.weeks.action import Action, Down
from e2e.weeks.site import OPERATOR, OPERATOR_PODS, Site
from e2e.weeks.tenant import SECONDS_MAX, Tenant
from harness.deadline import wait_for

API_OUTAGE_S: Final = 20.0
TRY_S: Final = 1.0


def _any_pod(tenant: Tenant, chance: random.Random) -> str:
    return chance.choice(sorted(tenant.castle.pods()))


def _delete_pod(site: Site, tenant: Tenant, chance: random.Random) -> None:
    tenant.castle.kubectl("delete", "pod", _any_pod(tenant, chance))


def _kill(site: Site, tenant: Tenant, chance: random.Random) -> None:
    tenant.castle.crash(_any_pod(tenant, chance))


def _evict(site: Site, tenant: Tenant, chance: random.Random) -> None:
    before = tenant.castle.pods()
    pod = chance.choice(sorted(before))
    wait_for(partial(tenant.castle.evict, pod), seconds_max=SECONDS_MAX, pause_s=TRY_S)
    wait_for(lambda: tenant.castle.pods().get(pod, ""), lambda now: now not in ("", before[pod]), SECONDS_MAX, POLL_S)


def _kill_operator(site: Site, tenant: Tenant, chance: random.Random) -> None:
    site.kill_operator()
    tenant.add_topic(f"topic-{len(tenant.topics)}", 1)


def _kill_one_of_two_operators(site: Site, tenant: Tenant, chance: random.Random) -> None:
    """Kill one of two operators: the other one acts then, or the one that was started again."""
    site.operator("scale", OPERATOR, "--replicas=2")
    site.await_operator()
    site.kill_operator()
    tenant.add_topic(f"topic-{len(tenant.topics)}", 1)
    site.operator("scale", OPERATOR, "--replicas=1")
    wait_for(lambda: site.operator("get", "pods", OPERATOR_PODS, "-oname").split(), lambda pods: len(pods) == 1)


def _lose_the_api_server(site: Site, tenant: Tenant, chance: random.Random) -> None:
    """Stop the API server; clients go on meanwhile."""
    site.plane.stop_api_server()
    try:
        ends_s = time.monotonic() + API_OUTAGE_S
        while time.monotonic() < ends_s:
            for each in site.tenants:
                each.traffic.await_progress()
    finally:
        site.plane.end_outage()
    tenant.add_topic(f"topic-{len(tenant.topics)}", 1)


def _restore_etcd(site: Site, tenant: Tenant, chance: random.Random) -> None:
    """Restore etcd, the Clusters, the metadata of topics made since the backup, and at last everything declared since.

    Brokers that have restarted since the backup have forgotten the newer metadata, so their topics are restored before
    the Topics are applied, as the guide says. Nodes end the pods that the restored etcd does not know.
    """
    site.restore()
    for each in site.tenants:
        each.apply_cluster()
        each.restore_metadata(if_missing=True)
    site.apply()


OUTAGES: Final = {
    "a pod is deleted": Action(_delete_pod),
    "a broker is killed": Action(_kill, stall_seconds_max=KILL_SECONDS_MAX),
    "a pod is evicted": Action(_evict),
    "the operator is killed": Action(_kill_operator),
    "of two operators the one that acts is killed": Action(_kill_one_of_two_operators),
    "the API server is away for 20 s": Action(_lose_the_api_server),
    "etcd is put back from a backup": Action(_restore_etcd, Down.ALL),
}
