"""The admission review of a change to a Cluster, as pure functions."""

from collections.abc import Iterator

from barnabas_core.config.broker_config import unused_settings
from barnabas_operator.planning.admission.verdict import AdmissionContext, Verdict
from barnabas_operator.planning.brokers.cluster_checks import refuse_change
from barnabas_operator.planning.brokers.pod_properties import pod_problems
from barnabas_operator.planning.configs import declared_texts
from barnabas_operator.planning.maintenance.run_checks import entry_problems
from barnabas_operator.planning.rebalance_request import named_rebalance, named_run
from barnabas_operator.resources.cluster import Cluster, ClusterSpec
from barnabas_operator.resources.json_types import Json


def review_cluster(wanted: Cluster, before: Cluster | None, context: AdmissionContext) -> Verdict:
    """Return the verdict on a Cluster: its problems, and warnings about settings without effect.

    Problems are invalid settings, forbidden changes, and a newly named rebalance plan that is missing or invalid.
    """
    problems = [message for _, message in pod_problems(wanted)]
    change = refuse_change(before, wanted, in_pods=True) if before is not None else None
    if change is not None:
        problems.append(change.message)
    known = before.spec.maintenance if before is not None else ()
    fresh = {each.name for each in wanted.spec.maintenance if each not in known}
    problems += [problem for name, problem in entry_problems(wanted.spec.maintenance) if name in fresh]
    name = named_run(wanted)
    if name is not None and (before is None or name != named_run(before)):
        problems += filter(None, [named_rebalance(name, context.rebalance_run).refusal])
    configs = before.spec.config if before is not None else {}
    news = {name: text for name, text in declared_texts(wanted.spec.config).items() if name not in configs}
    unused = (f"spec.config {warning}" for warning in unused_settings(news))
    return Verdict(
        "; ".join(problems) or None, (*unused, *_idle_addresses(wanted, before), *_needless_insecure(wanted))
    )


def _needless_insecure(wanted: Cluster) -> Iterator[str]:
    if wanted.spec.insecure and not any(each.is_open for each in wanted.spec.listeners):
        yield (
            "spec.insecure is true, although every listener has TLS or authentication; remove spec.insecure, "
            "so that nobody adds an open listener by mistake"
        )


def _idle_addresses(wanted: Cluster, before: Cluster | None) -> Iterator[str]:
    known = before.spec.listeners if before is not None else ()
    for index, each in enumerate(wanted.spec.listeners):
        if each in known:
            continue
        if each.advertised_host and each.type == "internal":
            yield (
                f"spec.listeners[{index}].advertisedHost has no effect, because clients of an internal listener "
                "connect to the DNS names of the brokers' pods"
            )
        if each.preferred_node_port_address_type and not each.is_at_node:
            idle = f"spec.listeners[{index}].preferredNodePortAddressType has no effect"
            yield f"{idle}, because only listeners of type nodeport without advertisedHost use the field"


def cluster_warnings(old: Json | None, new: Json | None) -> Iterator[str]:
    """Yield warnings about the disks of a Cluster that is created or deleted.

    On creation, warn if `spec.storage` is missing. On deletion, warn if `deleteClaim` deletes disks although the
    deletion policy is Retain.
    """
    if new is None:
        yield from _lost_disks(old or {})
    else:
        yield from _unasked_disks(old, new)


def _lost_disks(old: Json) -> Iterator[str]:
    spec = old.get("spec", {})
    volumes = spec.get("storage", {}).get("volumes", ())
    ids = ", ".join(str(volume["id"]) for volume in volumes if volume.get("deleteClaim"))
    if ids and spec.get("deletionPolicy", "Retain") == "Retain":
        lost = f"the records on volume {ids} of each broker are deleted with Cluster {old['metadata']['name']}"
        yield f"deleteClaim is true, so {lost}, although spec.deletionPolicy is Retain"


def _unasked_disks(old: Json | None, new: Json) -> Iterator[str]:
    if old is None and "storage" not in new.get("spec", {}):
        disk = ClusterSpec().storage.volumes[0]
        yield f"spec.storage is missing, so each broker gets a disk of {disk.size}, which can grow but never shrink"
