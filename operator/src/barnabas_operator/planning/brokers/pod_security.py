"""The security of brokers in pods: their settings, and the declarations that are refused.

In a secured Cluster brokers, operator, lag exporter and maintenance runs use the listener between brokers, which
accepts only certificates of the cluster's authority. The subjects of these certificates have an organization, which the
certificates of users never have. A User may not have the name of a broker or of the operator (`own_users`).
"""

from collections.abc import Iterator, Mapping
from typing import Final

from barnabas_operator.planning.brokers.local_security import (
    ADMINISTRATOR,
    REPLICATION,
    authorization_settings,
    is_secured,
    listener_settings,
    mechanism_of,
    protocol_of,
    security_problems,
)
from barnabas_operator.planning.brokers.security_stages import REPLICATION_TLS, STAGES, SecurityStage
from barnabas_operator.planning.brokers.server_properties import properties_text
from barnabas_operator.planning.object_names import (
    REPLICATION_PORT,
    brokers_name,
    lag_exporter_name,
    maintenance_name,
    operator_certificate_name,
)
from barnabas_operator.resources.cluster import Cluster, Listener
from barnabas_operator.resources.object_meta import GROUP
from barnabas_operator.resources.schema_check import Path

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
