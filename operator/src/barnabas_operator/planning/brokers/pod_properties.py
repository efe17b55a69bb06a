"""The `server.properties` of brokers in pods, from the Cluster and the addresses of its brokers."""

import hashlib
import ipaddress
import re
from collections.abc import Iterator
from typing import Final

from barnabas_core.config.broker_definitions import BROKER_CONFIGS
from barnabas_core.config.definitions import Dynamic
from barnabas_operator.planning.brokers.external_access import ExternalAccess
from barnabas_operator.planning.brokers.lag_exporter import lag_exporter_problems
from barnabas_operator.planning.brokers.pod_security import (
    between_brokers,
    pod_security_problems,
    protocols,
    security_of_pods,
)
from barnabas_operator.planning.brokers.protected_metrics import broker_settings, metrics_problems, of_brokers
from barnabas_operator.planning.brokers.security_stages import STAGES
from barnabas_operator.planning.brokers.server_properties import (
    internal_replicas,
    owned_problems,
    refused_by_brokers,
    volumes_twice,
)
from barnabas_operator.planning.brokers.template_checks import template_problems
from barnabas_operator.planning.configs import declared_texts
from barnabas_operator.planning.object_names import HTTP_PORT, REPLICATION_PORT, RESTART, pod_host
from barnabas_operator.resources.cluster import RESTART_ID_MAX, Cluster, Listener
from barnabas_operator.resources.cluster_kind import LISTENERS_OF_BROKERS, MEMORY_MIN, NAME_MAX, PORT_MIN, SIZE_MIN
from barnabas_operator.resources.quantity import quantity_value, shown_amount
from barnabas_operator.resources.schema_check import Path, dotted

MIN_ISR: Final = "min.insync.replicas"
DATA_FOLDER: Final = "/var/lib/barnabas"
ANYWHERE: Final = ""
"""The host that binds all addresses of a pod, also if it has only addresses of IPv6."""
SHOWN_DIGITS: Final = 16
_LABEL: Final = r"[a-zA-Z0-9]([-a-zA-Z0-9]{0,61}[a-zA-Z0-9])?"
_ALTERNATIVE_NAME: Final = re.compile(rf"(\*\.)?({_LABEL}\.)*(?=[a-zA-Z]){_LABEL}")
_HOST: Final = re.compile(r"\[[0-9a-fA-F:.%]+\]|[^][:/,\s]+")


def pod_properties(cluster: Cluster, broker_id: int, external: ExternalAccess) -> dict[str, str]:
    """Return one broker's settings by Kafka's names; settings in spec.config override all others.

    Dynamic settings (`dynamic_settings`) are left out, because they may change after a broker has read the file.
    Listeners whose external address is not assigned yet are left out, too.
    """
    namespace, name = cluster.metadata.namespace or "default", cluster.metadata.name
    protocol_of, stage = protocols(cluster), external.stage_of(cluster)
    host = pod_host(name, namespace, broker_id)
    bound = [(each, ANYWHERE, port) for each, port in between_brokers(stage).items()]
    advertised = [(each, host, port) for each, _, port in bound]
    for listener in cluster.spec.listeners:
        address = _advertised(listener, broker_id, host, external)
        if address is not None:
            bound.append((listener.name.upper(), ANYWHERE, listener.port))
            advertised.append((listener.name.upper(), *address))
    return {
        "node.id": str(broker_id),
        "listeners": _listed(bound),
        "advertised.listeners": _listed(advertised),
        "listener.security.protocol.map": ",".join(f"{each}:{protocol_of[each]}" for each, _, _ in bound),
        "inter.broker.listener.name": STAGES[stage].dials,
        **security_of_pods(cluster, stage),
        "http.listener": f"{ANYWHERE}:{HTTP_PORT}",
        **broker_settings(of_brokers(cluster, stage)),
        "log.dirs": ",".join(log_dir(volume.id) for volume in cluster.spec.storage.volumes),
        "metadata.store": f"kubernetes://{namespace}/{name}",
        "offsets.topic.replication.factor": str(internal_replicas(cluster)),
        "transaction.state.log.replication.factor": str(internal_replicas(cluster)),
        **{name: text for name, text in declared_texts(cluster.spec.config).items() if not _is_dynamic(name)},
    }


def volume_folder(volume_id: int) -> str:
    """Return the path at which a volume is mounted."""
    return f"{DATA_FOLDER}/volume-{volume_id}"


def log_dir(volume_id: int) -> str:
    """Return the log dir of a volume, below the mount point, because a file system may have `lost+found` at its top."""
    return f"{volume_folder(volume_id)}/log"


def dynamic_settings(cluster: Cluster) -> dict[str, str]:
    """Return the declared settings that running brokers apply without a restart (KIP-226)."""
    texts = declared_texts(cluster.spec.config)
    return {name: text for name, text in texts.items() if _is_dynamic(name)}


def restart_hash(cluster: Cluster, external: ExternalAccess) -> str:
    """Return a hash of the settings that take effect only after a restart.

    The hash does not depend on the broker id or the number of brokers, so adding a broker restarts no other broker.
    """
    left_out = {
        "node.id",
        "advertised.listeners",
        "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor",
    }
    settings = {name: text for name, text in pod_properties(cluster, 0, external).items() if name not in left_out}
    declared = declared_texts(cluster.spec.config)
    settings |= {name: text for name, text in declared.items() if name in left_out}
    hosts = [(each.name, each.type, each.advertised_host) for each in _outside(cluster)]
    return hashlib.sha256(repr((sorted(settings.items()), hosts)).encode()).hexdigest()[:SHOWN_DIGITS]


def restart_asked(cluster: Cluster) -> str:
    """Return the last restart of all brokers that was requested, from the annotation or from the status; else "".

    So brokers do not restart again when a user removes the annotation after the restart.
    """
    reported = cluster.status.restarted if cluster.status is not None else None
    return cluster.metadata.annotations.get(RESTART, "")[:RESTART_ID_MAX] or reported or ""


def pod_problems(cluster: Cluster) -> Iterator[tuple[Path, str]]:
    """Yield field and message of each problem that the schema allows but brokers in pods would refuse."""
    yield from owned_problems(cluster)
    yield from _unfit_name(cluster)
    yield from pod_security_problems(cluster)
    yield from volumes_twice(cluster)
    yield from resource_problems(cluster)
    yield from lag_exporter_problems(cluster)
    yield from metrics_problems(cluster)
    yield from _one_address_for_all(cluster)
    yield from template_problems(cluster)
    conflicts = (*_listeners_in_conflict(cluster), *_strange_hosts(cluster))
    yield from conflicts
    if not conflicts:
        yield from _refused_by_brokers(cluster)


def _unfit_name(cluster: Cluster) -> Iterator[tuple[Path, str]]:
    name = cluster.metadata.name
    if len(name) > NAME_MAX or "." in name or name[:1].isdigit():
        why = "because the names of Services and pods begin with the name of the Cluster"
        message = (
            f"metadata.name is {name}; allowed: at most {NAME_MAX} characters, which begin with a letter and "
            f"contain no dot, {why}"
        )
        yield ("metadata", "name"), message


def _strange_hosts(cluster: Cluster) -> Iterator[tuple[Path, str]]:
    for index, each in enumerate(cluster.spec.listeners):
        if each.advertised_host and _HOST.fullmatch(each.advertised_host) is None:
            path = ("spec", "listeners", index, "advertisedHost")
            allowed = "a host name or an IP address without a port; IPv6 addresses must be in square brackets"
            yield path, f"{dotted(path)} is {each.advertised_host}; allowed: {allowed}"
        for position, name in enumerate(each.alternative_names):
            if _ALTERNATIVE_NAME.fullmatch(name) is None and not _is_address(name):
                field = ("spec", "listeners", index, "alternativeNames", position)
                allowed = "a DNS name, which may begin with *., or an IP address"
                yield field, f"{dotted(field)} is {name}; allowed: {allowed}"


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _one_address_for_all(cluster: Cluster) -> Iterator[tuple[Path, str]]:
    """Refuse one host for several load balancers, because all of them have the same port."""
    brokers = cluster.spec.brokers.replicas
    for index, each in enumerate(cluster.spec.listeners):
        if each.type == "loadbalancer" and each.advertised_host and brokers > 1:
            path = ("spec", "listeners", index, "advertisedHost")
            why = f"which {brokers} brokers cannot share, because each load balancer listens at port {each.port}"
            yield path, f"{dotted(path)} is {each.advertised_host}, {why}; remove advertisedHost, or use type nodeport"


def _refused_by_brokers(cluster: Cluster) -> Iterator[tuple[Path, str]]:
    ports = {(each.name, 0): each.port for each in _outside(cluster)}
    external = ExternalAccess(node_ports=ports, balancer_hosts=dict.fromkeys(ports, "balancer"))
    yield from refused_by_brokers(cluster, {**pod_properties(cluster, 0, external), **dynamic_settings(cluster)})


def _advertised(listener: Listener, broker_id: int, host: str, external: ExternalAccess) -> tuple[str, int] | None:
    return (host, listener.port) if listener.type == "internal" else external.advertised(listener, broker_id)


def _listed(endpoints: list[tuple[str, str, int]]) -> str:
    return ",".join(f"{name}://{host}:{port}" for name, host, port in endpoints)


def _outside(cluster: Cluster) -> list[Listener]:
    return [each for each in cluster.spec.listeners if each.type != "internal"]


def _is_dynamic(name: str) -> bool:
    """True if the operator can change the setting on one running broker.

    `min.insync.replicas` cannot be set on a single broker (KIP-966).
    """
    definition = BROKER_CONFIGS.get(name)
    return definition is not None and definition.dynamic is Dynamic.CLUSTER_WIDE and name != MIN_ISR


def _listeners_in_conflict(cluster: Cluster) -> Iterator[tuple[Path, str]]:
    """Yield listeners whose name or port is taken by another listener or by the brokers, and ports below `PORT_MIN`."""
    taken: dict[int, str] = {REPLICATION_PORT: "the replication port", HTTP_PORT: "the metrics port"}
    names = set(LISTENERS_OF_BROKERS)
    for index, listener in enumerate(cluster.spec.listeners):
        where = f"spec.listeners[{index}]"
        if listener.port in taken or listener.port < PORT_MIN:
            why = f"which is {taken[listener.port]}" if listener.port in taken else _why_not(listener.port)
            message = f"{where}.port is {listener.port}, {why}; allowed: {PORT_MIN} to 65535, each port only once"
            yield ("spec", "listeners", index, "port"), message
        if listener.name in names:
            allowed = f"each name only once, and never {' or '.join(LISTENERS_OF_BROKERS)}"
            message = f"{where}.name is {listener.name!r}; allowed: {allowed}"
            yield ("spec", "listeners", index, "name"), message
        taken.setdefault(listener.port, f"the port of {listener.name}")
        names.add(listener.name)


def _why_not(port: int) -> str:
    return "but pods need a fixed port" if port == 0 else "but only root may listen on ports below 1024"


def resource_problems(cluster: Cluster) -> Iterator[tuple[Path, str]]:
    """Yield each field with an invalid quantity, and the message."""
    yield from _requests_above_limits(cluster)
    yield from _too_little_memory(cluster)
    yield from _tiny_disks(cluster)


def _requests_above_limits(cluster: Cluster) -> Iterator[tuple[Path, str]]:
    """Yield each request, declared or default, that is above its limit."""
    resources = cluster.spec.brokers.resources
    for name, asked in resources.requests.items():
        limit = resources.limits.get(name)
        if limit is not None and quantity_value(asked) > quantity_value(limit):
            path = ("spec", "brokers", "resources", "requests", name)
            yield path, f"{'.'.join(path)} is {asked}; allowed: at most {limit}, the value in limits"


def _too_little_memory(cluster: Cluster) -> Iterator[tuple[Path, str]]:
    """Yield each memory amount below the minimum, such as a number whose unit was forgotten."""
    resources = cluster.spec.brokers.resources
    for field, amounts in (("requests", resources.requests), ("limits", resources.limits)):
        memory = amounts.get("memory")
        if memory is not None and quantity_value(memory) < quantity_value(MEMORY_MIN):
            path = ("spec", "brokers", "resources", field, "memory")
            yield path, f"{'.'.join(path)} is {shown_amount(memory)}; allowed: {MEMORY_MIN} or more"


def _tiny_disks(cluster: Cluster) -> Iterator[tuple[Path, str]]:
    for index, volume in enumerate(cluster.spec.storage.volumes):
        if quantity_value(volume.size) < quantity_value(SIZE_MIN):
            path = ("spec", "storage", "volumes", index, "size")
            yield path, f"{dotted(path)} is {shown_amount(volume.size)}; allowed: {SIZE_MIN} or more, such as 10Gi"
