"""The settings of brokers in pods, their security, and the dynamic configs that follow the Cluster.

The security of brokers in pods: their settings, and the declarations that are refused. In a secured Cluster
brokers, operator, lag exporter and maintenance runs use the listener between brokers, which accepts only
certificates of the cluster's authority. The subjects of these certificates have an organization, which the
certificates of users never have. A User may not have the name of a broker or of the operator (`own_users`).
"""

import hashlib
import ipaddress
import re
from collections.abc import Iterator, Mapping
from typing import Final

from barnabas_core.config.broker_definitions import BROKER_CONFIGS
from barnabas_core.config.definitions import Dynamic
from barnabas_operator.planning.brokers.broker_security import (
    ADMINISTRATOR,
    REPLICATION,
    REPLICATION_TLS,
    STAGES,
    SecurityStage,
    authorization_settings,
    is_reached_by_tls,
    is_secured,
    listener_settings,
    mechanism_of,
    protocol_of,
    security_problems,
)
from barnabas_operator.planning.brokers.local_properties import (
    internal_replicas,
    lag_exporter_problems,
    owned_problems,
    properties_text,
    refused_by_brokers,
    volumes_twice,
)
from barnabas_operator.planning.brokers.pods import BrokerPod, ExternalAccess, PodsState
from barnabas_operator.planning.brokers.templates import template_problems
from barnabas_operator.planning.cluster_state import declared_texts
from barnabas_operator.planning.object_names import (
    FOLDER,
    HTTP_PORT,
    KEYSTORE,
    REPLICATION_PORT,
    RESTART,
    brokers_name,
    lag_exporter_name,
    maintenance_name,
    operator_certificate_name,
    pod_host,
)
from barnabas_operator.resources.cluster import RESTART_ID_MAX, Cluster, Listener
from barnabas_operator.resources.cluster_kind import LISTENERS_OF_BROKERS, MEMORY_MIN, NAME_MAX, PORT_MIN, SIZE_MIN
from barnabas_operator.resources.kind import GROUP, quantity_value, shown_amount
from barnabas_operator.resources.schema_check import Path, dotted
from barnabas_operator.resources.security import Metrics

CERTIFICATES: Final = "barnabas-certificates"
"""The volume of the brokers' pods that holds their certificate."""
CERTIFICATES_FOLDER: Final = "/etc/barnabas-certificates"
BROKER_PEM: Final = "broker.pem"
CLUSTER_AUTHORITY: Final = "cluster-ca.crt"
CLIENTS_AUTHORITY: Final = "clients-ca.crt"
ORGANIZATION: Final = GROUP
SECURED_BY: Final = "spec.listeners[].tls, spec.listeners[].authentication and spec.authorization"
_BETWEEN_BROKERS: Final = f"listener.name.{REPLICATION_TLS.lower()}"


def protocols(cluster: Cluster) -> Mapping[str, str]:
    """Return the security protocol of each listener by name, including the listeners between brokers."""
    found = {each.name.upper(): protocol_of(each) for each in cluster.spec.listeners}
    return {REPLICATION: "PLAINTEXT", REPLICATION_TLS: "SSL", **found}


def between_brokers(stage: SecurityStage) -> Mapping[str, int]:
    """Return the ports of the listeners between brokers at a `SecurityStage`, by listener name."""
    row = STAGES[stage]
    in_clear = {REPLICATION: REPLICATION_PORT} if row.in_clear else {}
    return in_clear if row.tls_port is None else {**in_clear, REPLICATION_TLS: row.tls_port}


def security_of_pods(cluster: Cluster, stage: SecurityStage) -> dict[str, str]:
    """Return a broker's settings for TLS, SASL and authorization, which are empty at the stage OPEN."""
    if stage is SecurityStage.OPEN:
        return {}
    of_rights = authorization_settings(cluster, _super_users(cluster)) if STAGES[stage].has_rights else {}
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": f"{CERTIFICATES_FOLDER}/{BROKER_PEM}",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": f"{CERTIFICATES_FOLDER}/{CLIENTS_AUTHORITY}",
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+)$/$1/,DEFAULT",
        "ssl.allow.san.changes": "true",  # Certificates change with the addresses of nodes and load balancers.
        f"{_BETWEEN_BROKERS}.ssl.truststore.location": f"{CERTIFICATES_FOLDER}/{CLUSTER_AUTHORITY}",
        f"{_BETWEEN_BROKERS}.ssl.client.auth": "required",
        **{name: value for each in cluster.spec.listeners for name, value in listener_settings(each).items()},
        **of_rights,
    }


def own_names(cluster: Cluster) -> tuple[str, str]:
    """Return the common names of the certificates of the brokers and of the operator."""
    name = cluster.metadata.name
    return brokers_name(name), operator_certificate_name(name)


def subject(common_name: str) -> str:
    """Return the subject of a certificate of the cluster's authority in the form that Java prints."""
    return f"CN={common_name},O={ORGANIZATION}"


def own_users(cluster: Cluster) -> list[str]:
    """Return the principal names of the brokers and of the operator, which are super users."""
    return [subject(name) for name in own_names(cluster)]


def companion_names(cluster: Cluster) -> tuple[str, str]:
    """Return the names of the Secrets of the lag exporter and of maintenance runs.

    The name of a Secret is also the common name of the certificate in the Secret.
    """
    name = cluster.metadata.name
    return lag_exporter_name(name), maintenance_name(name)


def companion_users(cluster: Cluster) -> list[str]:
    """Return the principal names of the lag exporter and of maintenance runs."""
    return [subject(name) for name in companion_names(cluster)]


def reserved_users(cluster: Cluster) -> tuple[str, ...]:
    """Return the names that no User may have, because internal users or the Cluster's own Secrets have them."""
    of_secrets = (ADMINISTRATOR, *companion_names(cluster)) if is_secured(cluster) else ()
    return (*own_users(cluster), *companion_users(cluster), *of_secrets)


def _super_users(cluster: Cluster) -> list[str]:
    """Return the super users: always the brokers and the operator.

    With `allowEveryoneIfNoAclFound`, the lag exporter and maintenance runs get no ACLs, so they are super users, too.
    """
    authorization = cluster.spec.authorization
    is_open_else = authorization is not None and authorization.allow_everyone_if_no_acl_found
    return [*own_users(cluster), *(companion_users(cluster) if is_open_else else [])]


def has_administrator(cluster: Cluster) -> bool:
    """True if a listener has authentication, so that the Cluster needs the user `admin`."""
    return any(each.authentication is not None for each in cluster.spec.listeners)


def needs_password(cluster: Cluster) -> bool:
    """Return whether a listener has SASL, so that the user `admin` needs a password."""
    return any(mechanism_of(each) is not None for each in cluster.spec.listeners)


def pod_security_problems(cluster: Cluster) -> Iterator[tuple[Path, str]]:
    """Yield the field and message of each problem with the TLS, users, rights and CAs of brokers in pods."""
    yield from _open_listeners(cluster)
    if not is_secured(cluster):
        for field, authority in (("clusterCa", cluster.spec.cluster_ca), ("clientsCa", cluster.spec.clients_ca)):
            if not authority.generate_certificate_authority:
                message = (
                    f"spec.{field}.generateCertificateAuthority is false, but the Cluster uses no certificates; "
                    f"set the field to true, or set any of {SECURED_BY}"
                )
                yield ("spec", field, "generateCertificateAuthority"), message
        return
    yield from security_problems(cluster)


def _open_listeners(cluster: Cluster) -> Iterator[tuple[Path, str]]:
    """Yield each listener that has neither TLS nor authentication, unless `spec.insecure` is true."""
    for index, each in enumerate(cluster.spec.listeners):
        if each.is_open and not cluster.spec.insecure:
            where, allowed = ("spec", "listeners", index), "set tls: true and authentication: {type: scram-sha-512}"
            why = "or set spec.insecure: true, which lets in anybody who can reach the brokers"
            yield where, f"spec.listeners[{index}] has neither tls nor authentication; {allowed}, {why}"


def client_settings(listener: Listener, bootstrap: str, files: Mapping[str, bytes]) -> str:
    """Return the `client.properties` of the user `admin`, which contains the certificates and needs no other file."""
    mechanism, found = mechanism_of(listener), {"security.protocol": protocol_of(listener)}
    if listener.tls:
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": files["ca.crt"].decode()}
    if mechanism is not None:
        found |= {"sasl.mechanism": mechanism, "sasl.jaas.config": files["sasl.jaas.config"].decode()}
    else:
        found |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": files["user.crt"].decode(),
            "ssl.keystore.key": files["user.key"].decode(),
        }
    settings = {"bootstrap.servers": bootstrap, **found}
    return properties_text(settings)


TOKEN: Final = "barnabas-metrics-token"
"""The volume that holds the bearer token for `/metrics`."""
TOKEN_FOLDER: Final = "/etc/barnabas-metrics"
TOKEN_FILE: Final = "token"
_TOKEN_PATH: Final = f"{TOKEN_FOLDER}/{TOKEN_FILE}"


def of_brokers(cluster: Cluster, stage: SecurityStage) -> Metrics | None:
    """Return `spec.metrics`, or None if it is missing or the brokers have no certificates yet."""
    return cluster.spec.metrics if stage is not SecurityStage.OPEN else None


def of_exporter(cluster: Cluster) -> Metrics | None:
    """Return `spec.metrics`, or None if it is missing or the lag exporter has no certificate yet."""
    return cluster.spec.metrics if is_reached_by_tls(cluster) else None


def broker_settings(metrics: Metrics | None) -> dict[str, str]:
    """Return a broker's settings that protect `/metrics`, or none if `metrics` is None."""
    if metrics is None:
        return {}
    return {
        "http.ssl.certificate.location": f"{CERTIFICATES_FOLDER}/{BROKER_PEM}",
        "http.bearer.token.location": _TOKEN_PATH,
    }


def exporter_options(metrics: Metrics | None) -> list[str]:
    """Return the lag exporter's options that protect `/metrics`, or none if `metrics` is None."""
    if metrics is None:
        return []
    return [f"--server.tls.cert-file={FOLDER}/{KEYSTORE}", f"--server.token-file={_TOKEN_PATH}"]


def metrics_problems(cluster: Cluster) -> Iterator[tuple[Path, str]]:
    """Yield a problem if `spec.metrics` declares a token, but the brokers have no certificates: a token needs TLS."""
    if cluster.spec.metrics is not None and not is_secured(cluster):
        secret = cluster.spec.metrics.token_secret.name
        why = "because without TLS the token would be sent in clear"
        allowed = f"remove spec.metrics, or set any of {SECURED_BY}, {why}"
        message = f"spec.metrics.tokenSecret.name is {secret}, but the brokers have no certificates; {allowed}"
        yield ("spec", "metrics", "tokenSecret", "name"), message


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
        "share.coordinator.state.topic.replication.factor": str(internal_replicas(cluster)),
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
        "share.coordinator.state.topic.replication.factor",
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


RACK: Final = "broker.rack"
HOSTS: Final = "advertised.hosts"
THROTTLES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
"""The throttle configs, which the operator never resets because a user may have set them for a reassignment."""

BrokerConfigs = Mapping[int, Mapping[str, str]]
Settings = Mapping[str, str | None]
"""The settings to change; None resets a setting to its default."""
Changes = dict[int, Settings]


def setting_changes(cluster: Cluster, overrides: BrokerConfigs, places: Mapping[int, Settings]) -> Changes:
    """Return the changes to dynamic configs, by broker.

    `overrides` holds the dynamic configs that are set on each broker, and `places` the rack and the advertised hosts of
    each broker, from `place_settings`. A config that is set but not declared is reset, except the throttle configs,
    `RACK` and `HOSTS`.
    """
    declared = dynamic_settings(cluster)
    changes = {number: _of_broker({**declared, **places.get(number, {})}, found) for number, found in overrides.items()}
    return {broker: change for broker, change in changes.items() if change}


def place_settings(cluster: Cluster, pods: PodsState) -> dict[int, Settings]:
    """Return, by broker id, the settings that depend on the node of the broker's pod: its rack and advertised hosts.

    A setting is left out while its value is unknown.
    """
    old = pods.remaining()  # These brokers have to restart, and may be too old to know `advertised.hosts`.
    return {
        number: {**_rack(cluster, pod), **(_hosts(cluster, pods, pod) if pod.host_ip and number not in old else {})}
        for number, pod in pods.pods.items()
    }


def _rack(cluster: Cluster, pod: BrokerPod) -> Settings:
    return {RACK: pod.rack} if cluster.spec.brokers.rack is not None and pod.rack is not None else {}


def _hosts(cluster: Cluster, pods: PodsState, pod: BrokerPod) -> Settings:
    """Return `advertised.hosts`: the address of the broker's node on each listener that clients reach at a node port.

    The value is None, which resets the config, if all these listeners advertise the pod's host IP.
    """
    hosts = {
        each.name: pods.external.node_hosts[each.name, pod.broker_id]
        for each in cluster.spec.listeners
        if each.is_at_node
    }
    if set(hosts.values()) <= {pod.host_ip}:
        return {HOSTS: None}
    return {HOSTS: ",".join(f"{name.upper()}:{host}" for name, host in hosts.items())}


def _of_broker(wanted: Settings, found: Mapping[str, str]) -> Settings:
    added = {name: text for name, text in wanted.items() if found.get(name) != text}
    gone = (name for name in found if name not in wanted and name not in (*THROTTLES, RACK, HOSTS))
    return {**added, **dict.fromkeys(gone, None)}
