"""A Strimzi manifest during its conversion. Each field that no converter reads becomes a note."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from barnabas_core.config.broker_config import parse_broker_config, unused_settings
from barnabas_core.config.definitions import InvalidConfig
from barnabas_operator.planning.brokers.local_properties import OWNED_BY
from barnabas_operator.planning.cluster_state import config_problems, declared_texts
from barnabas_operator.resources.kind import API_VERSION, JsonObject
from barnabas_operator.resources.schema_check import Path, dotted, findings, shown
from barnabas_operator.resources.topic import ConfigValue
from barnabas_operator.resources.yaml_documents import Document, Place

NO_COUNTERPART: Final = "the field has no counterpart"
_NO_JVM: Final = "brokers run without a JVM"
_METRICS: Final = "each broker serves /metrics on port 9404 anyway"
_OPERATOR: Final = "the operator manages Topics and Users anyway"
_AUTHORITY: Final = "the operator creates its own CA"
_LIFETIMES: Final = "authorities last ten years and certificates one; both are renewed at two thirds of that"
_CERT_MANAGER: Final = (
    "the operator asks no cert-manager; let it write the authority's Secrets, with generateCertificateAuthority: false"
)
_ROUTES: Final = "the operator creates no Ingress and no Route"
_RIGHTS: Final = "the operator creates all necessary role bindings"
_PRICE_OF_TIERS: Final = "Barnabas has no tiered storage; use the job archive to copy topics"

_KAFKA: Final[Mapping[str, str]] = {
    "spec.zookeeper": "brokers keep their metadata in the Kubernetes API",
    "spec.topicOperator": _OPERATOR,
    "spec.entityOperator": _OPERATOR,
    **{
        f"spec.{authority}.{name}": why
        for authority in ("clusterCa", "clientsCa")
        for name, why in {
            "validityDays": _LIFETIMES,
            "renewalDays": _LIFETIMES,
            "type": _CERT_MANAGER,
            "certManager": _CERT_MANAGER,
            "certificateExpirationPolicy": "barnabas.dev/force-replace makes another key",
        }.items()
    },
    "spec.jmxTrans": _METRICS,
    "spec.maintenanceTimeWindows": "set spec.rolling.pause to true, and back to false when brokers may restart",
    "spec.cruiseControl": "the operator moves replicas itself; see spec.rebalance",
    "spec.kafka.version": "the image determines the version",
    "spec.kafka.metadataVersion": "the operator raises the version when possible; see spec.metadataVersion",
    "spec.kafka.image": "the image contains no Barnabas broker; the chart sets brokerImage instead",
    "spec.kafka.brokerRackInitImage": "brokers get their rack from the operator",
    "spec.kafka.jvmOptions": _NO_JVM,
    "spec.kafka.jmxOptions": _NO_JVM,
    "spec.kafka.metrics": _METRICS,
    "spec.kafka.metricsConfig": _METRICS,
    "spec.kafka.logging": "log levels cannot be set",
    "spec.kafka.tieredStorage": _PRICE_OF_TIERS,
    "spec.kafka.quotas": "set quotas of default users and clients with kafka-configs --entity-default",
    "spec.kafka.resources.claims": NO_COUNTERPART,
    "spec.kafka.rack.idx": NO_COUNTERPART,
    "spec.kafka.storage.kraftMetadata": "brokers keep their metadata in the Kubernetes API",
    "spec.kafka.listeners[].configuration.useServiceDnsDomain": "the names of pods do not include the cluster domain",
    "spec.kafka.listeners[].configuration.maxConnections": "spec.config max.connections limits all listeners together",
    "spec.kafka.listeners[].configuration.maxConnectionCreationRate": (
        "spec.config max.connection.creation.rate limits all listeners together"
    ),
    "spec.kafka.listeners[].configuration.createBootstrapService": "each listener has a bootstrap Service",
    "spec.kafka.listeners[].configuration.publishNotReadyAddresses": "the operator sets the field",
    "spec.kafka.listeners[].configuration.brokers[].advertisedPort": "brokers advertise the port of the Service",
    "spec.kafka.listeners[].configuration.brokers[].host": _ROUTES,
    "spec.kafka.listeners[].configuration.bootstrap.host": _ROUTES,
    "spec.kafka.template.statefulset": "Strimzi ignores the field, too",
    "spec.kafka.template.initContainer": "brokers have no init container",
    "spec.kafka.template.clusterCaCert": _AUTHORITY,
    "spec.kafka.template.clusterRoleBinding": _RIGHTS,
    "spec.kafka.template.jmxSecret": _NO_JVM,
    "spec.kafka.template.externalBootstrapRoute": _ROUTES,
    "spec.kafka.template.externalBootstrapIngress": _ROUTES,
    "spec.kafka.template.perPodRoute": _ROUTES,
    "spec.kafka.template.perPodIngress": _ROUTES,
    "spec.kafkaExporter.image": "the lag exporter is in the operator's image",
    "spec.kafkaExporter.logging": "log levels cannot be set",
    "spec.kafkaExporter.enableSaramaLogging": "log levels cannot be set",
    "spec.kafkaExporter.showAllOffsets": "groups without members are always shown",
    "spec.kafkaExporter.livenessProbe": "change the probe in spec.lagExporter.template.container",
    "spec.kafkaExporter.readinessProbe": "change the probe in spec.lagExporter.template.container",
    "spec.kafkaExporter.template.service": "the lag exporter has no Service",
    "spec.kafkaExporter.template.serviceAccount": _RIGHTS,
}
_POOL: Final[Mapping[str, str]] = {
    "spec.jvmOptions": _NO_JVM,
    "spec.resources.claims": NO_COUNTERPART,
    "spec.template.initContainer": "brokers have no init container",
    "spec.template.perPodRoute": _ROUTES,
    "spec.template.perPodIngress": _ROUTES,
}
_USER: Final[Mapping[str, str]] = {
    "spec.authentication.validityDays": "the operator chooses how long certificates are valid",
    "spec.authentication.renewalDays": "the operator chooses when certificates are renewed",
    "spec.template": "the operator sets the labels of the Secret",
}
_REASONS: Final[Mapping[str, Mapping[str, str]]] = {"Kafka": _KAFKA, "KafkaNodePool": _POOL, "KafkaUser": _USER}

OTHER_KINDS: Final[Mapping[str, str]] = {
    "KafkaConnect": "run Kafka Connect in your own Deployment; Kafka Connect works with Barnabas as with Kafka",
    "KafkaConnector": "create the connector with the REST API of Kafka Connect",
    "KafkaBridge": "run an HTTP proxy for Kafka in your own Deployment",
    "KafkaMirrorMaker": "run MirrorMaker 2 in your own Deployment",
    "KafkaMirrorMaker2": "run MirrorMaker 2 in your own Deployment",
    "KafkaRebalance": "the operator itself proposes moves of replicas; see spec.rebalance of the Cluster",
    "StrimziPodSet": "Barnabas runs brokers in a StatefulSet",
}


def reason(kind: str, path: Path) -> str:
    """Return why a field of a Strimzi resource is left out."""
    pattern = dotted(tuple(0 if isinstance(step, int) else step for step in path)).replace("[0]", "[]")
    return _REASONS.get(kind, {}).get(pattern, NO_COUNTERPART)


T = TypeVar("T")


class Remark(NamedTuple):
    """A note or an error about a manifest, with its file and line."""

    place: Place
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


@dataclass(slots=True)
class Source:
    """One Strimzi resource, the file and the YAML document that contain it, and notes and errors about its fields."""

    kind: str
    name: str
    file: str
    first_line: int
    document: Document
    root: Path = ()
    """The path of the resource in its document; the path is empty unless the resource is an item of a List."""
    notes: list[Remark] = field(default_factory=list)
    errors: list[Remark] = field(default_factory=list)
    sections: list["Section"] = field(default_factory=list)

    def note(self, path: Path, message: str) -> None:
        """Add a note about a field without a counterpart; the message says what to do instead."""
        self.notes.append(self._remark(path, f"{dotted(path)} {message}", at_key=True))

    def hint(self, message: str) -> None:
        """Add a note about the whole resource."""
        self.notes.append(self._remark((), message))

    def error(self, path: Path, message: str) -> None:
        """Add an error, which makes the conversion fail; the message names the field."""
        remark = self._remark(path, message)
        if remark not in self.errors:  # A converter may read a field twice.
            self.errors.append(remark)

    def _remark(self, path: Path, message: str, *, at_key: bool = False) -> Remark:
        place = self.document.place((*self.root, *path), at_key=at_key).within(self.file, self.first_line)
        return Remark(place, f"{self.kind} {self.name}: {message}")

    def note_unread(self) -> None:
        """Add a note about each field that the conversion has not read and therefore leaves out."""
        for section in self.sections:
            for name in section.unread():
                path = (*section.path, name)
                self.note(path, f"is left out: {reason(self.kind, path)}")


class Section:
    """A mapping in a manifest, with a record of the fields that have been read."""

    def __init__(self, source: Source, fields: Mapping[str, Any], path: Path) -> None:
        self.source = source
        self.path = path
        self._fields = fields
        self._read: set[str] = set()
        source.sections.append(self)

    def __contains__(self, name: str) -> bool:
        return self._fields.get(name) is not None

    @property
    def is_empty(self) -> bool:
        """True if the manifest does not contain the section, or contains it without fields."""
        return not self._fields

    def take(self, name: str, kind: type[T]) -> T | None:
        """Return the value of a field, which then counts as read, or None if it is missing.

        If its type is wrong, add an error and return None.
        """
        self._read.add(name)
        value = self._fields.get(name)
        if value is None:
            return None
        if kind is float and type(value) is int:
            value = float(value)  # YAML parses a number without a decimal point as int.
        wrong = tuple(findings(msgspec.inspect.type_info(kind), value, (*self.path, name)))
        for finding in wrong:
            self.source.error(finding.path, finding.message)
        return None if wrong else msgspec.convert(value, kind)

    def need(self, name: str, kind: type[T], example: str) -> T | None:
        """Return the value of a required field, and add an error if the field is missing."""
        if name not in self:
            path = (*self.path, name)
            self.source.error(self.path, f"{dotted(path)} is missing; allowed: {example}")
        return self.take(name, kind)

    def section(self, name: str) -> "Section":
        """Return a `Section` for the mapping in a field. The section is empty if the field is missing."""
        return Section(self.source, self.take(name, dict[str, Any]) or {}, (*self.path, name))

    def sections(self, name: str) -> "list[Section]":
        """Return a `Section` for each mapping in a field that holds a list."""
        items = enumerate(self.take(name, tuple[dict[str, Any], ...]) or ())
        return [Section(self.source, item, (*self.path, name, index)) for index, item in items]

    def choice(self, name: str, choices: Mapping[str, T], default: str | None = None) -> T | None:
        """Return the entry of `choices` for the value of a field, or None; add an error if the value is not allowed."""
        word = self.take(name, str) or default
        if word is None or word in choices:
            return choices[word] if word is not None else None
        path = (*self.path, name)
        self.source.error(path, f"{dotted(path)} is {shown(word)}; allowed: {' or '.join(choices)}")
        return None

    def note(self, name: str, message: str) -> None:
        """Add a note about a field; the conversion then does not note the field as left out."""
        self._read.add(name)
        self.source.note((*self.path, name), message)

    def skip(self, *names: str) -> None:
        """Mark fields without an equivalent as read, so that the conversion does not note them as left out."""
        self._read.update(names)

    def leave_out(self, why: str) -> None:
        """Mark all fields as read, and add a note that says why the section is left out."""
        self.skip_rest()
        self.source.note(self.path, f"is left out: {why}")

    def skip_rest(self) -> None:
        """Mark all remaining fields as read, so that the conversion does not note them as left out."""
        self._read.update(self._fields)

    def unread(self) -> Iterator[str]:
        """Yield the names of the fields that have a value and that the conversion has not read."""
        return (name for name, value in self._fields.items() if name not in self._read and value is not None)


def given(**fields: object) -> JsonObject:
    """Return the fields that are neither None nor empty; tuples become lists."""
    there = {name: value for name, value in fields.items() if value is not None and value not in ({}, (), [])}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in there.items()}


CLUSTER_LABEL: Final = "strimzi.io/cluster"
_PAUSE: Final = "strimzi.io/pause-reconciliation"
_MANAGED: Final = "strimzi.io/managed"
_LABELS_OF_TOOLS: Final = ("strimzi.io/", "app.kubernetes.io/")
_WITHOUT_EFFECT: Final = frozenset(
    {
        _PAUSE,
        _MANAGED,
        "kubectl.kubernetes.io/last-applied-configuration",
        "strimzi.io/kraft",
        "strimzi.io/node-pools",
        "strimzi.io/next-node-ids",
        "strimzi.io/remove-node-ids",
    }
)


@dataclass(frozen=True, slots=True)
class StrimziResource:
    """A Strimzi resource as read from YAML; its `source` collects notes and errors."""

    source: Source
    namespace: str | None
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    spec: Section

    @property
    def cluster(self) -> str | None:
        """The `Kafka` resource that the label `strimzi.io/cluster` names, or None if the label is missing."""
        return self.labels.get(CLUSTER_LABEL)

    def named_cluster(self) -> str | None:
        """Return the `Kafka` resource that the label `strimzi.io/cluster` names; add a note if the label is missing."""
        if self.cluster is None:
            self.source.hint(f"has no label {CLUSTER_LABEL}; if there are several Clusters, set spec.cluster")
        return self.cluster

    @property
    def is_paused(self) -> bool:
        """True if an annotation stops the reconciliation of the resource."""
        return self.annotations.get(_PAUSE) == "true" or self.annotations.get(_MANAGED) == "false"

    @property
    def own_labels(self) -> dict[str, str]:
        """The labels of the user, without labels of Strimzi and other tools."""
        return {name: text for name, text in self.labels.items() if not name.startswith(_LABELS_OF_TOOLS)}

    def as_kind(self, kind: str, spec: JsonObject) -> JsonObject:
        """Return the Barnabas resource that replaces the Strimzi resource, without Strimzi's labels and annotations."""
        annotations = {name: text for name, text in self.annotations.items() if not name.startswith("strimzi.io/")}
        annotations = {name: text for name, text in annotations.items() if name not in _WITHOUT_EFFECT}
        metadata = given(
            name=self.source.name, namespace=self.namespace, labels=self.own_labels, annotations=annotations
        )
        return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def read_resource(source: Source, fields: Mapping[str, Any]) -> StrimziResource:
    """Return the Strimzi resource with the given fields, and add notes and errors about its metadata to `source`."""
    whole = Section(source, fields, ())
    whole.skip("apiVersion", "kind", "status")
    metadata = whole.section("metadata")
    namespace = metadata.take("namespace", str)
    labels = metadata.take("labels", dict[str, str]) or {}
    annotations = metadata.take("annotations", dict[str, str]) or {}
    metadata.skip_rest()  # The API server sets all other metadata.
    for name in annotations:
        if name.startswith("strimzi.io/") and name not in _WITHOUT_EFFECT:
            source.note(("metadata", "annotations", name), "is left out: the annotation has no counterpart")
    return StrimziResource(source, namespace, labels, annotations, whole.section("spec"))


OPEN_ELSE: Final = "allow.everyone.if.no.acl.found"
"""The broker setting for which a Cluster has a field in `spec.authorization`."""
_OF_LISTENERS: Final = ("ssl.", "sasl.", "listener.name.")


def broker_config(kafka: Section) -> JsonObject:
    """Return `spec.config` of a Cluster, in which `allow.everyone.if.no.acl.found` may still be set.

    The caller must move this setting to `spec.authorization`, where a Cluster has a field for it.
    """
    config = kafka.take("config", dict[str, ConfigValue]) or {}
    kept = {name: value for name, value in config.items() if not _is_useless(kafka, name)}
    for name, problem in _problems(kept).items():
        kafka.source.note((*kafka.path, "config", name), f"is left out: {problem}")
        kept.pop(name, None)
    return kept


def topic_config(spec: Section) -> JsonObject:
    """Return `spec.config` of a Topic, and add a note about each invalid config, which is left out."""
    config = spec.take("config", dict[str, ConfigValue]) or {}
    problems = {name: config_problems({name: value}) for name, value in config.items()}
    for name, found in problems.items():
        if found:
            spec.source.note((*spec.path, "config", name), f"is left out: {'; '.join(found)}")
    return {name: value for name, value in config.items() if not problems[name]}


def _is_useless(kafka: Section, name: str) -> bool:
    owner = "spec.listeners" if name.startswith(_OF_LISTENERS) else OWNED_BY.get(name)
    why = (
        f"the setting comes from {owner}"
        if owner is not None
        else "; ".join(f"it {each.removeprefix(name).strip()}" for each in unused_settings([name]))
    )
    if why:
        kafka.source.note((*kafka.path, "config", name), f"is left out: {why}")
    return bool(why)


def _problems(config: dict[str, ConfigValue]) -> dict[str, str]:
    try:
        parse_broker_config(declared_texts(config))
    except InvalidConfig as error:
        return {problem.name: str(problem) for problem in error.problems}
    return {}
