"""The settings of local brokers from the manifests of one directory, and the options of the lag exporter."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from barnabas_core.config.broker_config import BrokerConfig, parse_broker_config
from barnabas_core.config.definitions import InvalidConfig
from barnabas_kafka.security import Tls
from barnabas_operator.planning.brokers.broker_security import (
    HOST,
    REPLICATION,
    BrokerSecrets,
    owner_of,
    security_problems,
    security_settings,
)
from barnabas_operator.planning.cluster_state import declared_texts
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.schema_check import Path, dotted
from barnabas_operator.resources.security import LagExporter
from barnabas_operator.resources.yaml_documents import Declared, ManifestError, Manifests, Place

EXPRESSIONS: Final = {
    "topicRegex": "topic_regex",
    "topicExcludeRegex": "topic_exclude_regex",
    "groupRegex": "group_regex",
    "groupExcludeRegex": "group_exclude_regex",
}


def lag_exporter_problems(cluster: Cluster) -> Iterator[tuple[Path, str]]:
    """Yield each invalid regular expression of the lag exporter: the field and the problem."""
    for name, attribute in EXPRESSIONS.items() if cluster.spec.lag_exporter is not None else ():
        text = getattr(cluster.spec.lag_exporter, attribute)
        try:
            re.compile(text)
        except (re.error, OverflowError, RecursionError) as error:  # The pattern may be too large or nested too deeply.
            path = ("spec", "lagExporter", name)
            yield path, f"{dotted(path)} is {text!r}, which is not a regular expression of Python: {error}"


def name_options(declared: LagExporter) -> list[str]:
    """Return the options of `barnabas lag-exporter` that select topics and groups."""
    return [
        f"--topic.filter={declared.topic_regex}",
        f"--topic.exclude={declared.topic_exclude_regex}",
        f"--group.filter={declared.group_regex}",
        f"--group.exclude={declared.group_exclude_regex}",
    ]


def tls_options(tls: Tls | None) -> list[str]:
    """Return the TLS options of `barnabas lag-exporter`, or none if the brokers have no TLS."""
    if tls is None:
        return []
    files = {"ca-file": tls.ca_file, "cert-file": tls.cert_file, "key-file": tls.key_file}
    return ["--tls.enabled", *(f"--tls.{name}={file}" for name, file in files.items() if file is not None)]


# The settings that other fields of the Cluster set, so that spec.config must not set them.
OWNED_BY: Final[Mapping[str, str]] = {
    "node.id": "spec.brokers",
    "broker.id": "spec.brokers",
    "listeners": "spec.listeners",
    "advertised.listeners": "spec.listeners",
    "advertised.hosts": "spec.listeners",
    "listener.security.protocol.map": "spec.listeners",
    "inter.broker.listener.name": "spec.listeners",
    "log.dir": "spec.storage",
    "log.dirs": "spec.storage",
    "metadata.store": "Barnabas itself",
    "http.listener": "Barnabas itself",
    "http.ssl.certificate.location": "spec.metrics",
    "http.ssl.key.location": "spec.metrics",
    "http.bearer.token.location": "spec.metrics",
    "broker.rack": "spec.brokers.rack",
}

PORT_MAX: Final = 65_535
REPLICAS_OF_INTERNAL_TOPICS_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class BrokerPlace:
    """The id, ports and folder of one local broker, and the metadata file that all brokers share.

    Secured brokers connect to each other at `replication_port`.
    """

    broker_id: int
    port: int
    http_port: int
    folder: str
    metadata_file: str
    replication_port: int = 0

    @property
    def address(self) -> str:
        """The `host:port` at which clients connect to the broker."""
        return f"{HOST}:{self.port}"

    @property
    def replication_address(self) -> str:
        """The `host:port` at which other brokers and `barnabas up` connect to the broker if the brokers use TLS."""
        return f"{HOST}:{self.replication_port}"

    @property
    def metrics_url(self) -> str:
        """The URL of the broker's Prometheus metrics."""
        return f"http://{HOST}:{self.http_port}/metrics"


def server_properties(cluster: Cluster, place: BrokerPlace, secrets: BrokerSecrets | None = None) -> dict[str, str]:
    """Return the settings of one broker; spec.config overrides all others. Without `secrets` the broker has no TLS."""
    log_dirs = (f"{place.folder}/volume-{volume.id}" for volume in cluster.spec.storage.volumes)
    return {
        "node.id": str(place.broker_id),
        **_listener_settings(cluster, place, secrets),
        "http.listener": f"{HOST}:{place.http_port}",
        "log.dirs": ",".join(log_dirs),
        "metadata.store": f"sqlite:///{place.metadata_file}",
        "offsets.topic.replication.factor": str(internal_replicas(cluster)),
        "transaction.state.log.replication.factor": str(internal_replicas(cluster)),
        "share.coordinator.state.topic.replication.factor": str(internal_replicas(cluster)),
        **declared_texts(cluster.spec.config),
    }


def _listener_settings(cluster: Cluster, place: BrokerPlace, secrets: BrokerSecrets | None) -> dict[str, str]:
    (listener,) = cluster.spec.listeners
    name = listener.name.upper()
    if secrets is not None:
        addresses = {name: place.address, REPLICATION: place.replication_address}
        return security_settings(cluster, addresses, secrets)
    return {
        "listeners": f"{name}://{place.address}",
        "listener.security.protocol.map": f"{name}:PLAINTEXT",
        "inter.broker.listener.name": name,
    }


def internal_replicas(cluster: Cluster) -> int:
    """Return the default replication factor of the internal topics."""
    return min(REPLICAS_OF_INTERNAL_TOPICS_MAX, cluster.spec.brokers.replicas)


def properties_text(properties: Mapping[str, str]) -> str:
    """Return the properties as the text of a properties file, with backslashes and newlines escaped."""
    lines = (f"{name}={value}".replace("\\", "\\\\").replace("\n", "\\n") for name, value in properties.items())
    return "".join(f"{line}\n" for line in lines)


def cluster_problems(cluster: Cluster) -> Iterator[tuple[Path, str]]:
    """Yield the field and an error message for each value that is valid in the schema but not for local brokers."""
    yield from owned_problems(cluster)
    yield from _ports_too_high(cluster)
    yield from volumes_twice(cluster)
    yield from lag_exporter_problems(cluster)
    yield from security_problems(cluster)
    place = BrokerPlace(0, 9092, 9093, "/data", "/data/metadata.sqlite")
    yield from refused_by_brokers(cluster, server_properties(cluster, place))


def owned_problems(cluster: Cluster) -> Iterator[tuple[Path, str]]:
    """Yield each setting in spec.config that spec.config must not set."""
    for name, owner in _owned_settings(cluster).items():
        yield ("spec", "config", name), f"spec.config must not set {name}, because the value comes from {owner}"


def refused_by_brokers(cluster: Cluster, settings: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    """Yield each of a broker's settings that a broker would refuse, and each default that the brokers cannot fulfil."""
    owned = _owned_settings(cluster)
    try:
        config = parse_broker_config({name: text for name, text in settings.items() if name not in owned})
    except InvalidConfig as error:
        for problem in error.problems:
            yield ("spec", "config", problem.name), f"spec.config {problem._replace(line=None)}"
    else:
        yield from _impossible_replicas(cluster, config)


def _owned_settings(cluster: Cluster) -> dict[str, str]:
    """Return the settings in spec.config that spec.config must not set, each with the field that sets it instead."""
    owners = {name: OWNED_BY.get(name) or owner_of(cluster, name) for name in cluster.spec.config}
    return {name: owner for name, owner in owners.items() if owner is not None}


def volumes_twice(cluster: Cluster) -> Iterator[tuple[Path, str]]:
    """Yield the path of each volume id that an earlier volume has, and an error message."""
    ids = [volume.id for volume in cluster.spec.storage.volumes]
    for index, volume_id in enumerate(ids):
        if volume_id in ids[:index]:
            path = ("spec", "storage", "volumes", index, "id")
            yield (
                path,
                f"spec.storage.volumes[{index}].id is {volume_id} for the second time; each volume needs its own id",
            )


def _ports_too_high(cluster: Cluster) -> Iterator[tuple[Path, str]]:
    """Yield the path of each port that is too high, as broker n listens at the port + n, and an error message."""
    brokers = cluster.spec.brokers.replicas
    port_max = PORT_MAX - brokers + 1
    for index, listener in enumerate(cluster.spec.listeners):
        if listener.port > port_max:
            why = f"because each of the {brokers} brokers has its own port"
            message = f"spec.listeners[{index}].port is {listener.port}; allowed: 0 to {port_max}, {why}"
            yield ("spec", "listeners", index, "port"), message


def _impossible_replicas(cluster: Cluster, config: BrokerConfig) -> Iterator[tuple[Path, str]]:
    """Yield a problem for each default that the brokers cannot fulfil.

    A replication factor must not exceed the number of brokers. `min.insync.replicas` must not exceed any replication
    factor.
    """
    brokers = cluster.spec.brokers.replicas
    factors = {
        "default.replication.factor": config.default_replication_factor,
        "offsets.topic.replication.factor": config.offsets_topic_replication_factor,
        "transaction.state.log.replication.factor": config.transaction_state_log_replication_factor,
        "share.coordinator.state.topic.replication.factor": config.share_coordinator_state_topic_replication_factor,
    }
    for name, factor in factors.items():
        if factor > brokers:
            message = f"{name}={factor}: allowed: 1 to {brokers}, the number of brokers"
            yield ("spec", "config", name), f"spec.config {message}"
    name, fewest = min(factors.items(), key=lambda item: item[1])
    if config.min_insync_replicas > fewest:
        message = f"min.insync.replicas={config.min_insync_replicas}: allowed: 1 to {fewest}, the value of {name}"
        yield ("spec", "config", "min.insync.replicas"), f"spec.config {message}"


def manifest_problems(manifests: Manifests, directory: str) -> tuple[ManifestError, ...]:
    """Return all errors. If a manifest is invalid by itself, checks across manifests are left out."""
    if manifests.errors:
        return manifests.errors
    clusters = [item for item in manifests.declared if isinstance(item.resource, Cluster)]
    if not clusters:
        return (ManifestError(Place(directory, 1, 1), "no manifest declares a Cluster; declare exactly one Cluster"),)
    return (*_other_clusters(clusters), *_invalid_cluster(clusters[0]), *_of_another(manifests, clusters[0]))


def _other_clusters(clusters: list[Declared]) -> Iterator[ManifestError]:
    first, *others = clusters
    for other in others:
        yield ManifestError(
            other.place(), f"another Cluster is declared at {first.place()}; declare exactly one Cluster"
        )


def _invalid_cluster(declared: Declared) -> Iterator[ManifestError]:
    assert isinstance(declared.resource, Cluster)
    listeners = declared.resource.spec.listeners
    if len(listeners) > 1:
        message = (
            f"spec.listeners has {len(listeners)} entries; allowed: one entry, because the brokers are local processes"
        )
        yield ManifestError(declared.place(("spec", "listeners")), message)
        return
    for path, message in cluster_problems(declared.resource):
        yield ManifestError(declared.place(path), message)


def _of_another(manifests: Manifests, cluster: Declared) -> Iterator[ManifestError]:
    name = cluster.resource.metadata.name
    for item in manifests.declared:
        if not isinstance(item.resource, Cluster) and item.resource.spec.cluster not in (None, name):
            message = f"spec.cluster is {item.resource.spec.cluster!r}; allowed: {name}, the Cluster of these manifests"
            yield ManifestError(item.place(("spec", "cluster")), message)
