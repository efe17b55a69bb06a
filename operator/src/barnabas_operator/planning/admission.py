"""The admission review of changes to resources before the API server stores them."""

import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from barnabas_core.config.broker_config import unused_settings
from barnabas_operator.planning.brokers.cluster_checks import refuse_change
from barnabas_operator.planning.brokers.pod_properties import pod_problems
from barnabas_operator.planning.cluster_state import ClusterState, declared_texts, named_rebalance, named_run
from barnabas_operator.planning.conditions import CLUSTER_NOT_READY
from barnabas_operator.planning.maintenance.run_checks import entry_problems
from barnabas_operator.planning.topics.topic_plan import not_internal, refuse, valid_config, valid_name
from barnabas_operator.planning.users.user_plan import OF_THE_RESOURCE, ClusterUsers, UserContext
from barnabas_operator.planning.users.user_plan import refuse as refuse_user
from barnabas_operator.resources.cluster import Cluster, ClusterSpec
from barnabas_operator.resources.kind import Json, JsonObject, ListenerTemplate, foreign_json
from barnabas_operator.resources.maintenance_run import MaintenanceJob
from barnabas_operator.resources.topic import Topic
from barnabas_operator.resources.user import User


class Verdict(NamedTuple):
    """The result of a review: a refusal, or None if the change is allowed, and warnings for the user."""

    refusal: str | None = None
    warnings: tuple[str, ...] = ()


class AdmissionContext(NamedTuple):
    """The facts about a Cluster and its resources that a review needs.

    `taken_by` is the name of another resource that already manages the same topic, user or group. `state` is the last
    state that the brokers reported. `collides_with` is the name of a Topic whose topic name differs only in `.` and
    `_`. `rebalance_run` is the MaintenanceJob that the annotation of the Cluster names. `min_insync_replicas` is the
    default of the Cluster. `reserved` are the names that no User of the Cluster may have.
    """

    taken_by: str | None = None
    state: ClusterState | None = None
    collides_with: str | None = None
    rebalance_run: MaintenanceJob | None = None
    min_insync_replicas: str | None = None
    reserved: tuple[str, ...] = ()


NOTHING_KNOWN: Final = ClusterState(racks={}, topics={})
APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
NODE_PORTS: Final = range(30_000, 32_768)
"""The ports of nodes that Services may have, unless the API server was started with another range."""
WITHOUT_A_CLUSTER: Final = (valid_name, not_internal, valid_config)


class _AppliedSpec(msgspec.Struct):
    config: dict[str, Any] = {}


class _Applied(msgspec.Struct):
    """The configs in the manifest that `kubectl apply` stored in its annotation."""

    spec: _AppliedSpec = msgspec.field(default_factory=_AppliedSpec)


def review_topic(wanted: Topic, before: Topic | None, context: AdmissionContext) -> Verdict:
    """Return the first reason to refuse a Topic, or warnings if there is none.

    Brokers that are down count as live brokers. If no broker has answered yet, or the Topic is paused, only the rules
    that hold in every cluster are checked.
    """
    if wanted.spec.pause:
        context = AdmissionContext()
    refusals = [
        _taken(wanted, context),
        _collides(wanted, before, context),
        _decreased(wanted, before),
        *_elsewhere(wanted, before),
    ]
    if context.state is not None:
        refusal = refuse(wanted, context.state.complete)
        refusals.append(refusal.message if refusal is not None and refusal.reason != CLUSTER_NOT_READY else None)
    else:
        found = (check(wanted, NOTHING_KNOWN) for check in WITHOUT_A_CLUSTER)
        refusals += [refusal.message for refusal in found if refusal is not None]
    refused = next(filter(None, refusals), None)
    return Verdict(refused, () if refused else tuple(_topic_warnings(wanted, before, context)))


def _taken(wanted: Topic, context: AdmissionContext) -> str | None:
    if context.taken_by is None:
        return None
    allowed = "only one Topic resource may manage a topic"
    return f"topic {wanted.topic_name} is already managed by the Topic {context.taken_by}; {allowed}"


def _collides(wanted: Topic, before: Topic | None, context: AdmissionContext) -> str | None:
    """Return the refusal of a new Topic whose topic name differs from that of another Topic only in '.' and '_'."""
    is_there = before is not None or (context.state is not None and wanted.topic_name in context.state.topics)
    if context.collides_with is None or is_there:
        return None
    why = f"topic {wanted.topic_name} and the topic of the Topic {context.collides_with} differ only in '.' and '_'"
    return f"{why}, so both topics would have the same name in metrics; choose another name"


def _decreased(wanted: Topic, before: Topic | None) -> str | None:
    had, has = before.spec.partitions if before else None, wanted.spec.partitions
    if had is None or (has is not None and has >= had):
        return None
    now = "missing" if has is None else has
    return f"Decreasing partitions is not supported: spec.partitions is {now}; allowed: {had} or more"


def _elsewhere(wanted: Topic, before: Topic | None) -> Iterator[str]:
    """Yield refusals of changes to `topicName` and `cluster`, because a Topic cannot switch to another topic."""
    was, now = (before or wanted).spec, wanted.spec
    if was.topic_name != now.topic_name:
        had = was.topic_name or "no value"
        yield f"spec.topicName is {now.topic_name or 'missing'}; allowed: {had}, because a topic cannot be renamed"
    has_it = before.status.cluster if before is not None and before.status is not None else None
    left_out = () if was.cluster is not None else (None,)
    if has_it is not None and now.cluster not in (has_it, *left_out):
        way_out = ", or no value" if left_out else ""
        yield (
            f"spec.cluster is {now.cluster or 'missing'}; "
            f"allowed: {has_it} (a Topic cannot move to another Cluster){way_out}"
        )


def _topic_warnings(wanted: Topic, before: Topic | None, context: AdmissionContext) -> Iterator[str]:
    return (text for warn in WARNINGS if (text := warn(wanted, before, context)) is not None)


def keys_move(wanted: Topic, before: Topic | None, context: AdmissionContext) -> str | None:
    """Return a warning if the number of partitions grows, because many keys then map to other partitions."""
    found = context.state.topics.get(wanted.topic_name) if context.state is not None else None
    had = len(found.partitions) if found is not None else (before.spec.partitions if before else None)
    has = wanted.spec.partitions
    if had is None or has is None or has <= had:
        return None
    return f"after the change from {had} to {has} partitions, producers write many keys to other partitions than before"


def one_replica(wanted: Topic, _before: Topic | None, _context: AdmissionContext) -> str | None:
    """Return a warning if the topic has one replica, because every restart of its broker is an outage."""
    if wanted.spec.replicas != 1:
        return None
    return "spec.replicas is 1, so each partition is offline while its broker is down; topics usually have 3 replicas"


def no_spare_replica(wanted: Topic, _before: Topic | None, context: AdmissionContext) -> str | None:
    """Return a warning if writes with acks=all fail as soon as one replica is offline.

    If the Topic does not declare `min.insync.replicas`, the value of the Cluster is used.
    """
    own = declared_texts(wanted.spec.config).get("min.insync.replicas")
    fewest, whose = (own, "") if own is not None else (context.min_insync_replicas, " (from the Cluster)")
    by_default = context.state.default_replication_factor if context.state is not None else None
    replicas = wanted.spec.replicas or by_default
    if fewest is None or replicas is None or not fewest.isdecimal() or int(fewest) < replicas:
        return None
    if int(fewest) > replicas:
        return (
            f"min.insync.replicas is {fewest}{whose}, but the topic has {replicas} replicas: writes with acks=all fail"
        )
    if replicas == 1:
        return None  # `one_replica` already warns about a topic with one replica.
    return (
        f"min.insync.replicas is {fewest}{whose}, and the topic has {replicas} replicas, "
        "so writes with acks=all are refused while any replica is offline"
    )


def lost_nulls(wanted: Topic, _before: Topic | None, _context: AdmissionContext) -> str | None:
    """Return a warning if `kubectl apply` has removed configs that the user's manifest sets to null.

    kubectl's annotation last-applied-configuration still contains these configs.
    """
    applied = foreign_json(wanted.metadata.annotations.get(APPLIED, "{}"), _Applied) or _Applied()
    lost = [name for name, value in applied.spec.config.items() if value is None and name not in wanted.spec.config]
    if not lost:
        return None
    return (
        f"spec.config of the manifest sets {', '.join(lost)} to null, but kubectl apply removes null values, "
        "so these configs get their defaults; kubectl apply --server-side keeps null values"
    )


Warn = Callable[[Topic, Topic | None, AdmissionContext], str | None]
WARNINGS: Final[tuple[Warn, ...]] = (keys_move, one_replica, no_spare_replica, lost_nulls)


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
    of_listeners = (*_idle_addresses(wanted, before), *_strange_node_ports(wanted, before))
    return Verdict("; ".join(problems) or None, (*unused, *of_listeners, *_needless_insecure(wanted)))


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


def _strange_node_ports(wanted: Cluster, before: Cluster | None) -> Iterator[str]:
    """Yield warnings about node ports that Kubernetes refuses, which it does not notice in a dry run."""
    known = before.spec.listeners if before is not None else ()
    for index, each in enumerate(wanted.spec.listeners):
        for field, spec in _service_specs(each.template) if each not in known else ():
            ports = spec.get("ports")
            for number, port in enumerate(ports if isinstance(ports, list) else ()):
                found = port.get("nodePort") if isinstance(port, dict) else None
                if isinstance(found, int) and found not in NODE_PORTS:
                    path = f"spec.listeners[{index}].template.{field}.spec.ports[{number}].nodePort"
                    allowed = f"allowed: {NODE_PORTS[0]} to {NODE_PORTS[-1]}"
                    yield f"{path} is {found}; {allowed}, unless --service-node-port-range of the API server differs"


def _service_specs(template: ListenerTemplate) -> Iterator[tuple[str, JsonObject]]:
    """Yield the field and the declared spec of each Service of a listener."""
    yield "bootstrapService", template.bootstrap_service.spec
    yield "brokerService", template.broker_service.spec
    for index, each in enumerate(template.broker_services):
        yield f"brokerServices[{index}]", each.spec


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


def review_user(wanted: User, before: User | None, context: AdmissionContext) -> Verdict:
    """Return the first problem that can be found without asking the brokers.

    Problems that only the brokers' answers show are reported later, in the condition `Ready`.
    """
    return Verdict(next(_refusals(wanted, before, context), None))


def _refusals(wanted: User, before: User | None, context: AdmissionContext) -> Iterator[str]:
    if context.taken_by is not None and not wanted.spec.pause:
        allowed = "only one User resource may manage a user"
        yield f"user {wanted.username} is already managed by the User {context.taken_by}; {allowed}"
    if before is not None and before.spec.username != wanted.spec.username:
        had = before.spec.username or "no value"
        yield f"spec.username is {wanted.spec.username or 'missing'}; allowed: {had}, because a user cannot be renamed"
    refusal = refuse_user(wanted, UserContext(ClusterUsers({}), context.reserved), OF_THE_RESOURCE)
    if refusal is not None:
        yield refusal.message


_ABOUT: Final = re.compile(
    r'^\S+ "[^"]*" is invalid: |^.*: strict decoding error: '
    r"|^failed to create typed patch object \([^)]*\): (errors:\s*)?\."
)
_OF_BROKERS: Final = (
    (r"spec\.template\.spec\.containers\[0\]\.resources", "spec.brokers.resources"),
    (r"spec\.template\.spec\.containers\[0\]", "spec.template.brokerContainer"),
    (r"spec\.template\.spec\b", "spec.template.pod.spec"),
    (r"spec\.template(?:\.metadata)?\.(labels|annotations)", r"spec.template.pod.metadata.\1"),
)
_EXPORTER: Final = "spec.lagExporter"
_ITS_CONTAINER: Final = r"spec\.template\.spec\.containers\[(?:0|name=\"lag-exporter\")\]"
_OF_THE_LAG_EXPORTER: Final = (
    (rf"{_ITS_CONTAINER}\.(resources|image)\b", rf"{_EXPORTER}.\1"),
    (_ITS_CONTAINER, f"{_EXPORTER}.template.container"),
    (r"spec\.template\.spec\b", f"{_EXPORTER}.template.pod.spec"),
    (r"spec\.template(?:\.metadata)?\.(labels|annotations)", rf"{_EXPORTER}.template.pod.metadata.\1"),
)
_OF_SCHEDULES: Final = ((r"\bspec\.(schedule|timeZone|startingDeadlineSeconds)\b", r"spec.maintenance[].\1"),)
JOB: Final = "Job"
_OF_RUNS: Final = ((r"spec\.template\.spec\b", "spec.template.pod.spec"),)
_FIELDS: Final = {
    JOB: _OF_RUNS,
    "StatefulSet": _OF_BROKERS,
    "Deployment": _OF_THE_LAG_EXPORTER,
    "CronJob": _OF_SCHEDULES,
}


def in_declared_fields(kind: str, message: str) -> str:
    """Replace the Kubernetes field paths in an API server's message by the field paths of the Barnabas resource.

    Paths of fields that only the operator sets stay the same. The introduction of the message, such as
    `Job "a" is invalid:`, is removed.
    """
    text = _ABOUT.sub("", message)
    for theirs, ours in _FIELDS.get(kind, ()):
        text = re.sub(theirs, ours, text)
    return text
