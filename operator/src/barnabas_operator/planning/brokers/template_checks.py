"""The checks of a Cluster's templates.

A template must not change a field of a Kubernetes object that the operator or another field of the Cluster sets.
"""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

import msgspec

from barnabas_operator.planning.brokers.strategic_merge import (
    CONTAINERS,
    DELETE,
    DIRECTIVE,
    LIST_KEYS,
    REPLACE,
    entry_key,
    joined,
)
from barnabas_operator.planning.brokers.template_limits import (
    BY_LISTENER,
    CONTAINER,
    DEPLOYMENT,
    EXPORTER_CONTAINER,
    EXPORTER_MONITOR,
    EXPORTER_POD,
    HEADLESS,
    NETWORK_POLICY,
    POD,
    SELECTING,
    SERVICE,
    STATEFUL_SET,
    Steps,
)
from barnabas_operator.planning.object_names import labels
from barnabas_operator.resources.cluster import Cluster, Listener
from barnabas_operator.resources.lag_exporter import LagExporterTemplate
from barnabas_operator.resources.schema_check import Path, dotted, shown
from barnabas_operator.resources.template import TemplateMetadata

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
