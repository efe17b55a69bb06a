"""The templates of a Cluster: the fields that they may not change, the checks, and the merge into an object.

The checks of a Cluster's templates. A template must not change a field of a Kubernetes object that the operator or
another field of the Cluster sets.

The merge of a user's template into a Kubernetes object, by the rules of a strategic merge patch in Kubernetes. A
list is merged by key only if Kubernetes defines a merge key for it and the operator itself adds entries to it.
"""

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

import msgspec

from barnabas_operator.planning.object_names import HTTP_PORT, LAG_EXPORTER_PORT, REPLICATION_PORT, labels
from barnabas_operator.resources.cluster import Cluster, Listener
from barnabas_operator.resources.kind import Json, TemplateMetadata
from barnabas_operator.resources.schema_check import Path, dotted, shown
from barnabas_operator.resources.security import LagExporterTemplate

DIRECTIVE: Final = "$patch"
REPLACE: Final = "replace"
DELETE: Final = "delete"
CONTAINERS: Final = "spec.template.spec.containers"
LIST_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "spec.ports": ("port", "protocol"),
    CONTAINERS: ("name",),
    f"{CONTAINERS}.env": ("name",),
    f"{CONTAINERS}.ports": ("containerPort", "protocol"),
    f"{CONTAINERS}.volumeMounts": ("mountPath",),
    "spec.template.spec.topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "spec.template.spec.volumes": ("name",),
}
"""The merge keys of lists, by the path of the list; all other lists are replaced."""

KEY_DEFAULTS: Final = {"protocol": "TCP"}


def merged(base: Json, patch: Json) -> dict[str, Any]:
    """Return a new object: `base` with `patch` merged over it."""
    return _mapping(base, patch, "")


def entry_key(entry: Json, keys: Sequence[str]) -> tuple[object, ...]:
    """Return the values of the merge-key fields `keys` in a list entry.

    The value of a missing field is its default in `KEY_DEFAULTS`, or else None.
    """
    return tuple(entry.get(key, KEY_DEFAULTS.get(key)) for key in keys)


def joined(path: str, name: str) -> str:
    """Return the path of the field `name` below `path`."""
    return f"{path}.{name}" if path else name


def _mapping(base: Json, patch: Json, path: str) -> dict[str, Any]:
    result = {} if patch.get(DIRECTIVE) == REPLACE else dict(base)
    for name, value in patch.items():
        if isinstance(value, Mapping) and value.get(DIRECTIVE) == DELETE:
            result.pop(name, None)
        elif name != DIRECTIVE:
            result[name] = _value(result.get(name), value, joined(path, name))
    return result


def _value(base: Any, value: Any, path: str) -> Any:
    if isinstance(value, Mapping):
        return _mapping(base if isinstance(base, Mapping) else {}, value, path)
    if isinstance(value, list) and path in LIST_KEYS:
        return _keyed_list(base or [], value, path)
    return [_value(None, each, path) for each in value] if isinstance(value, list) else value


def _keyed_list(base: Sequence[Json], patch: Sequence[Json], path: str) -> list[Json]:
    keys, is_replaced = LIST_KEYS[path], any(each.get(DIRECTIVE) == REPLACE for each in patch)
    entries = {} if is_replaced else {entry_key(each, keys): each for each in base}
    for each in patch:
        key = entry_key(each, keys)
        if each.get(DIRECTIVE) == DELETE:
            entries.pop(key, None)
        elif DIRECTIVE not in each:
            entries[key] = _mapping(entries.get(key, {}), each, path)
    return list(entries.values())


Steps = tuple[str, ...]
"""The path of a field: the names of fields and, for entries of lists, their merge keys, such as `9092,TCP`.

A `*` stands for any text within one name or key.
"""

RIGHTS: Final = "because the brokers need the field to access the Kubernetes API"
SELECTOR: Final = "because the field selects the brokers' pods"
BY_LISTENER: Final = "because spec.listeners sets the field"

STATEFUL_SET: Final[Mapping[Steps, str]] = {
    ("spec", "replicas"): "because spec.brokers.replicas sets the field",
    ("spec", "template"): "because spec.template.pod and spec.template.brokerContainer change the pod template",
    ("spec", "volumeClaimTemplates"): "because spec.storage sets the volumes",
    ("spec", "selector"): SELECTOR,
    ("spec", "serviceName"): "because brokers find each other by DNS names",
    ("spec", "podManagementPolicy"): "because all brokers must start at the same time",
    ("spec", "updateStrategy"): "because only the operator restarts brokers",
    ("spec", "ordinals"): "because brokers are numbered from 0",
    ("spec", "persistentVolumeClaimRetentionPolicy"): "because deletionPolicy and deleteClaim set the field",
}
POD: Final[Mapping[Steps, str]] = {
    ("spec", "containers", "broker"): "because spec.template.brokerContainer changes the container",
    ("spec", "initContainers", "broker"): "because the brokers' container has that name",
    ("spec", "volumes", "config"): "because the volume holds the brokers' settings",
    ("spec", "volumes", "access"): RIGHTS,
    ("spec", "volumes", "barnabas-certificates"): "because the volume holds the brokers' certificates",
    ("spec", "volumes", "barnabas-metrics-token"): "because spec.metrics sets the volume",
    ("spec", "volumes", "volume-*"): "because spec.storage sets the volumes",
    ("spec", "serviceAccountName"): RIGHTS,
    ("spec", "serviceAccount"): RIGHTS,
    ("spec", "hostname"): "because brokers find each other by DNS names",
    ("spec", "subdomain"): "because brokers find each other by DNS names",
    ("spec", "nodeName"): "because all brokers would be on one node; set nodeSelector or affinity instead",
    ("spec", "restartPolicy"): "because a broker that ends must start again",
}
CONTAINER: Final[Mapping[Steps, str]] = {
    ("name",): "because the operator finds the container by its name",
    ("image",): "because spec.brokers.image sets the field",
    ("resources",): "because spec.brokers.resources sets the field",
    ("command",): "because the operator sets the command of brokers",
    ("args",): "because the operator sets the command of brokers",
    **{("env", name): "because the broker reads the variable" for name in ("POD_NAME", "POD_UID", "HOST_IP")},
    ("volumeMounts", "/etc/barnabas*"): "because the brokers' settings are mounted at the path",
    ("volumeMounts", "/var/lib/barnabas*"): "because the brokers' disks are mounted at the path",
    ("volumeMounts", "/var/run/secrets/kubernetes.io/serviceaccount*"): RIGHTS,
    **{
        (f"{probe}Probe", "httpGet"): "because the probe checks the broker's state"
        for probe in ("startup", "liveness", "readiness")
    },
    ("ports", f"{REPLICATION_PORT},*"): "because brokers replicate over the port",
    ("ports", f"{HTTP_PORT},*"): "because brokers report their state on the port",
}
SERVICE: Final[Mapping[Steps, str]] = {
    ("spec", "selector"): SELECTOR,
    ("spec", "type"): BY_LISTENER,
    ("spec", "publishNotReadyAddresses"): "because clients need the address of a broker that is not ready yet",
    **{("spec", "ports", "*", field): BY_LISTENER for field in ("name", "targetPort")},
}
HEADLESS: Final[Mapping[Steps, str]] = {
    **SERVICE,
    ("spec", "clusterIP"): "because the Service gives each broker a DNS name",
    ("spec", "clusterIPs"): "because the Service gives each broker a DNS name",
    ("spec", "ports"): BY_LISTENER,
}
SELECTING: Final[Mapping[Steps, str]] = {("spec", "selector"): SELECTOR}
NETWORK_POLICY: Final[Mapping[Steps, str]] = {
    ("spec", "podSelector"): SELECTOR,
    ("spec", "ingress"): "because spec.listeners[].networkPolicyPeers sets the field",
}
BY_EXPORTER: Final = "because the field selects the lag exporter's pod"
DEPLOYMENT: Final[Mapping[Steps, str]] = {
    ("spec", "replicas"): "because two exporters would export every series twice",
    ("spec", "selector"): BY_EXPORTER,
    ("spec", "strategy"): "because two exporters would export every series twice",
    ("spec", "template"): "because template.pod and template.container of spec.lagExporter change the pod template",
}
EXPORTER_POD: Final[Mapping[Steps, str]] = {
    ("spec", "containers", "lag-exporter"): "because spec.lagExporter.template.container changes the container",
    ("spec", "restartPolicy"): "because an exporter that ends must start again",
}
EXPORTER_CONTAINER: Final[Mapping[Steps, str]] = {
    ("name",): "because the operator finds the container by its name",
    ("image",): "because spec.lagExporter.image sets the field",
    ("resources",): "because spec.lagExporter.resources sets the field",
    ("command",): "because the operator sets the command of the exporter",
    ("args",): "because the operator sets the command of the exporter",
    ("ports", f"{LAG_EXPORTER_PORT},*"): "because Prometheus scrapes the port",
}
EXPORTER_MONITOR: Final[Mapping[Steps, str]] = {("spec", "selector"): BY_EXPORTER}


Problem = tuple[Path, str]

OWNED_PREFIXES: Final = ("barnabas.dev/", "statefulset.kubernetes.io/", "apps.kubernetes.io/", "controller-revision-")
LEAVE_OUT: Final = "; remove the field from the template"


class Entry(NamedTuple):
    """One template to check.

    `where` is its path in the Cluster, `root` its path in the Kubernetes object, and `fixed` the fields that it may not
    change, with the reasons.
    """

    where: Path
    patch: Mapping[str, Any]
    fixed: Mapping[Steps, str]
    root: str = ""
    ports: frozenset[int] | None = None
    """The allowed ports of a Service; None if the template is not for a Service."""


def template_problems(cluster: Cluster) -> Iterator[Problem]:
    """Yield each field of a template that is not allowed, and the message."""
    for entry in _entries(cluster):
        metadata = entry.patch.get("metadata")
        if isinstance(metadata, TemplateMetadata):
            yield from _owned_metadata((*entry.where, "metadata"), metadata, cluster.metadata.name)
        fields = {name: value for name, value in entry.patch.items() if name != "metadata"}
        yield from _mapping_problems(entry, fields, entry.where, (), entry.root)
        yield from _strange_ports(entry)
    yield from _strange_brokers(cluster)
    yield from _unguarded(cluster)


def _entries(cluster: Cluster) -> Iterator[Entry]:
    template, here = cluster.spec.template, ("spec", "template")
    ports = frozenset(each.port for each in cluster.spec.listeners if each.type == "internal")
    own_ports: dict[Steps, str] = {("ports", f"{each.port},*"): BY_LISTENER for each in cluster.spec.listeners}
    yield Entry(here, {"metadata": template.metadata}, {})
    yield Entry((*here, "statefulSet"), _fields(template.stateful_set), STATEFUL_SET)
    yield Entry((*here, "pod"), _fields(template.pod), POD, "spec.template")
    yield Entry((*here, "brokerContainer"), template.broker_container, {**CONTAINER, **own_ports}, CONTAINERS)
    yield Entry((*here, "persistentVolumeClaim"), _fields(template.persistent_volume_claim), {})
    yield Entry((*here, "brokersService"), _fields(template.brokers_service), HEADLESS)
    yield Entry((*here, "bootstrapService"), _fields(template.bootstrap_service), SERVICE, ports=ports)
    yield Entry((*here, "configMap"), _fields(template.config_map), {})
    yield Entry((*here, "serviceAccount"), _fields(template.service_account), {})
    yield Entry((*here, "podDisruptionBudget"), _fields(template.pod_disruption_budget), SELECTING)
    yield Entry((*here, "networkPolicy"), _fields(template.network_policy), NETWORK_POLICY)
    yield Entry((*here, "podMonitor"), _fields(template.pod_monitor), SELECTING)
    for index, listener in enumerate(cluster.spec.listeners):
        yield from _of_listener(("spec", "listeners", index, "template"), listener)
    if cluster.spec.lag_exporter is not None:
        yield from _of_lag_exporter(("spec", "lagExporter", "template"), cluster.spec.lag_exporter.template)


def _of_lag_exporter(here: Path, template: LagExporterTemplate) -> Iterator[Entry]:
    yield Entry((*here, "deployment"), _fields(template.deployment), DEPLOYMENT)
    yield Entry((*here, "pod"), _fields(template.pod), EXPORTER_POD, "spec.template")
    yield Entry((*here, "container"), template.container, EXPORTER_CONTAINER, CONTAINERS)
    yield Entry((*here, "podMonitor"), _fields(template.pod_monitor), EXPORTER_MONITOR)


def _of_listener(here: Path, listener: Listener) -> Iterator[Entry]:
    template, ports = listener.template, frozenset({listener.port})
    yield Entry((*here, "bootstrapService"), _fields(template.bootstrap_service), SERVICE, ports=ports)
    yield Entry((*here, "brokerService"), _fields(template.broker_service), SERVICE, ports=ports)
    for index, each in enumerate(template.broker_services):
        yield Entry((*here, "brokerServices", index), _fields(each), SERVICE, ports=ports)


def _fields(template: msgspec.Struct) -> Mapping[str, Any]:
    return {name: getattr(template, name) for name in ("metadata", "spec") if hasattr(template, name)}


def _owned_metadata(where: Path, metadata: TemplateMetadata, cluster: str) -> Iterator[Problem]:
    for field, names in (("labels", metadata.labels), ("annotations", metadata.annotations)):
        owned = labels(cluster).keys() if field == "labels" else ()
        for name, value in names.items():
            if name in owned or name.startswith(OWNED_PREFIXES):
                path = (*where, field, name)
                yield (
                    path,
                    f"{dotted(path)} is {shown(value)}, but the operator reserves this name; choose another name",
                )


def _problems(entry: Entry, value: object, where: Path, steps: Steps, path: str) -> Iterator[Problem]:
    """Yield the problems of a value and of the values in it.

    `where` is the path of the value in the Cluster, `steps` its path in the template, and `path` its path in the
    Kubernetes object.
    """
    because = _why_fixed(entry, steps)
    if because is not None:
        yield (
            where,
            f"{dotted(where)} is {shown(value)}, which is not allowed {because}"
            + ("" if "instead" in because else LEAVE_OUT),
        )
    elif value is None:
        yield where, f"{dotted(where)} is empty; allowed: a value, or {{{DIRECTIVE}: {DELETE}}} to remove the field"
    elif path in LIST_KEYS:
        yield from _keyed_problems(entry, value, where, steps, path)
    elif isinstance(value, Mapping):
        yield from _mapping_problems(entry, value, where, steps, path)


def _mapping_problems(
    entry: Entry, value: Mapping[str, object], where: Path, steps: Steps, path: str
) -> Iterator[Problem]:
    yield from _directive_problems(entry, value, where, steps)
    for name, item in value.items():
        if name != DIRECTIVE:
            yield from _problems(entry, item, (*where, name), (*steps, name), joined(path, name))


def _keyed_problems(entry: Entry, value: object, where: Path, steps: Steps, path: str) -> Iterator[Problem]:
    keys = LIST_KEYS[path]
    if not isinstance(value, list):
        yield where, f"{dotted(where)} is {shown(value)}; allowed: a list"
        return
    for index, each in enumerate(value):
        place = (*where, index)
        if not isinstance(each, Mapping):
            yield place, f"{dotted(place)} is {shown(each)}; allowed: a mapping"
        elif each.get(DIRECTIVE) == REPLACE:
            yield from _directive_problems(entry, each, place, steps)
        elif None in entry_key(each, keys):
            lacking = next(key for key in keys if each.get(key) is None)
            yield (
                place,
                (
                    f"{dotted((*place, lacking))} is missing; "
                    "allowed: a value that identifies the list entry to change or add"
                ),
            )
        elif strange := next((key for key in keys if isinstance(each.get(key), Mapping | list)), None):
            yield place, f"{dotted((*place, strange))} is {shown(each[strange])}; allowed: a text or a number"
        else:
            yield from _entry_problems(entry, each, place, (*steps, ",".join(map(str, entry_key(each, keys)))), path)


def _entry_problems(
    entry: Entry, each: Mapping[str, object], place: Path, steps: Steps, path: str
) -> Iterator[Problem]:
    fixed = _why_fixed(entry, steps)
    if fixed is not None:
        key = (*place, LIST_KEYS[path][0])
        yield key, f"{dotted(key)} is {shown(each[LIST_KEYS[path][0]])}, which is not allowed {fixed}{LEAVE_OUT}"
        return
    others = {name: item for name, item in each.items() if name not in LIST_KEYS[path]}
    yield from _mapping_problems(entry, others, place, steps, path)


def _directive_problems(entry: Entry, value: Mapping[str, object], where: Path, steps: Steps) -> Iterator[Problem]:
    """Yield each `$patch` that is invalid or would remove a field that a template must not change."""
    directive, place = value.get(DIRECTIVE), (*where, DIRECTIVE)
    if directive not in (None, REPLACE, DELETE):
        yield place, f"{dotted(place)} is {shown(directive)}; allowed: {REPLACE} or {DELETE}"
    elif directive is not None:
        lost = next((each for each in entry.fixed if len(each) > len(steps) and _matches(steps, each)), None)
        if lost is not None:
            why = f"but {'.'.join(lost)} must not be removed, {entry.fixed[lost]}"
            yield place, f"{dotted(place)} is {directive}, {why}; remove {DIRECTIVE} from the template"


def _why_fixed(entry: Entry, steps: Steps) -> str | None:
    return next((why for each, why in entry.fixed.items() if len(each) == len(steps) and _matches(steps, each)), None)


def _matches(steps: Steps, pattern: Steps) -> bool:
    return all(fnmatchcase(step, each) for step, each in zip(steps, pattern, strict=False))


def _strange_ports(entry: Entry) -> Iterator[Problem]:
    spec = entry.patch.get("spec")
    ports = spec.get("ports", ()) if entry.ports is not None and isinstance(spec, Mapping) else ()
    for index, each in enumerate(ports if isinstance(ports, list) else ()):
        port = each.get("port") if isinstance(each, Mapping) else None
        if port is not None and port not in (entry.ports or ()):
            path = (*entry.where, "spec", "ports", index, "port")
            allowed = " or ".join(map(str, sorted(entry.ports or ()))) or "none"
            yield path, f"{dotted(path)} is {shown(port)}; allowed: {allowed}, as declared in spec.listeners"


def _strange_brokers(cluster: Cluster) -> Iterator[Problem]:
    """Yield a problem for each broker id that `brokerServices` lists twice, and for templates of internal listeners.

    An internal listener has no Service of its own, so its template must be left out.
    """
    for index, listener in enumerate(cluster.spec.listeners):
        where = ("spec", "listeners", index, "template")
        if listener.type == "internal" and listener.template != type(listener.template)():
            why = "has no Service of its own; change spec.template.bootstrapService instead"
            yield where, f"{dotted(where)} is set, but an internal listener {why}"
        ids = [each.broker_id for each in listener.template.broker_services]
        for number, broker_id in enumerate(ids):
            if broker_id in ids[:number]:
                path = (*where, "brokerServices", number, "brokerId")
                yield path, f"{dotted(path)} is {broker_id} a second time; list each broker only once"


def _unguarded(cluster: Cluster) -> Iterator[Problem]:
    """Yield a problem if the NetworkPolicy lacks the policy type Ingress, which protects the replication port."""
    types = cluster.spec.template.network_policy.spec.get("policyTypes")
    if isinstance(types, list) and "Ingress" not in types:
        path = ("spec", "template", "networkPolicy", "spec", "policyTypes")
        yield (
            path,
            f"{dotted(path)} lacks Ingress, which protects the replication; allowed: [Ingress] or [Ingress, Egress]",
        )
