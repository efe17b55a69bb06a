"""The security of brokers: settings and files of local ones, and the stages in which it is turned on or off.

The security of local brokers: their settings, and the files of their clients. Brokers and `barnabas up` communicate
over a replication listener with TLS certificates, so they need no passwords.

The stages in which the security of a Cluster is turned on or off while it serves clients. Brokers of neighbouring
stages can connect to each other, so each rolling restart moves all brokers one stage forward or back. A broker
connects to the listener whose name is its own inter.broker.listener.name, at the port that the other broker
advertises. While a broker has a plaintext and a TLS listener for brokers, the TLS listener needs a name and a port
of its own. In the last rolling restart the plaintext listener ends, and the TLS listener gets its port, 9091.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from barnabas_core.acls import MEANINGS, not_one_user
from barnabas_operator.planning.conditions import NOT_SUPPORTED, Refusal
from barnabas_operator.planning.object_names import PASSING_PORT, REPLICATION_PORT, pod_host
from barnabas_operator.resources.cluster import Cluster, Listener, SecurityStageName
from barnabas_operator.resources.schema_check import Path, dotted

HOST: Final = "127.0.0.1"
ADMINISTRATOR: Final = "admin"
"""The super user that every secured Cluster has."""
BROKER: Final = "broker"
OPERATOR: Final = "operator"
OWN_USERS: Final = (BROKER, OPERATOR)
REPLICATION: Final = "REPLICATION"
SCRAM: Final = "SCRAM-SHA-512"
PLAIN: Final = "PLAIN"
MECHANISMS: Final[Mapping[str, str]] = {"scram-sha-512": SCRAM, "plain": PLAIN}
_SCRAM_LOGIN: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
_PLAIN_LOGIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_OF_AUTHORIZATION: Final = ("authorizer.class.name", "super.users", "allow.everyone.if.no.acl.found")
_OF_LISTENERS: Final = ("ssl.", "sasl.", "listener.name.")


class UserFiles(NamedTuple):
    """The paths of the files of one user: credentials, and client settings."""

    name: str
    folder: str

    @property
    def certificate(self) -> str:
        """The path of the certificate in PEM format."""
        return f"{self.folder}/user.crt"

    @property
    def key(self) -> str:
        """The path of the private key in PEM format."""
        return f"{self.folder}/user.key"

    @property
    def both(self) -> str:
        """The path of the PEM file with key and certificate, which Kafka's tools read."""
        return f"{self.folder}/user.pem"

    @property
    def authority(self) -> str:
        """The path of the certificate of the cluster's authority."""
        return f"{self.folder}/ca.crt"

    @property
    def password(self) -> str:
        """The path of the file with the password."""
        return f"{self.folder}/password"

    @property
    def java_settings(self) -> str:
        """The path of the client settings for Kafka's tools."""
        return f"{self.folder}/client.properties"

    @property
    def librdkafka_settings(self) -> str:
        """The path of the client settings for kcat and other clients based on librdkafka."""
        return f"{self.folder}/kcat.conf"


class BrokerSecrets(NamedTuple):
    """The paths of the brokers' keystore and truststore."""

    keystore: str
    truststore: str


def is_secured(cluster: Cluster) -> bool:
    """Return whether the Cluster declares TLS, authentication or authorization."""
    listeners = cluster.spec.listeners
    return cluster.spec.authorization is not None or any(each.tls or each.authentication for each in listeners)


def mechanism_of(listener: Listener) -> str | None:
    """Return Kafka's name of the SASL mechanism of a listener, or None if it has no SASL."""
    return MECHANISMS.get(listener.authentication.type) if listener.authentication is not None else None


def users_of(cluster: Cluster) -> Sequence[str]:
    """Return the names of the users to create for a secured Cluster: `admin`, and the declared super users."""
    if not is_secured(cluster):
        return ()
    authorization = cluster.spec.authorization
    return list(dict.fromkeys((ADMINISTRATOR, *(authorization.super_users if authorization else ()))))


def security_settings(cluster: Cluster, addresses: Mapping[str, str], secrets: BrokerSecrets) -> dict[str, str]:
    """Return a broker's settings for TLS, for authorization, and for its two listeners.

    `addresses` holds the address of each listener by the name of the listener.
    """
    (listener,) = cluster.spec.listeners
    name = listener.name.upper()
    protocols = {name: protocol_of(listener), REPLICATION: "SSL"}
    return {
        "listeners": ",".join(f"{each}://{addresses[each]}" for each in protocols),
        "listener.security.protocol.map": ",".join(f"{each}:{protocol}" for each, protocol in protocols.items()),
        "inter.broker.listener.name": REPLICATION,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": secrets.keystore,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": secrets.truststore,
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+)$/$1/,DEFAULT",
        "listener.name.replication.ssl.client.auth": "required",
        **listener_settings(listener),
        **authorization_settings(cluster, OWN_USERS),
    }


def protocol_of(listener: Listener) -> str:
    """Return Kafka's name of the security protocol of a listener."""
    return ("SASL_" if mechanism_of(listener) else "") + ("SSL" if listener.tls else "PLAINTEXT")


def listener_settings(listener: Listener) -> dict[str, str]:
    """Return a broker's settings for the authentication at a listener.

    With PLAIN, the broker checks a password against the SCRAM credentials of the user.
    """
    prefix, mechanism = f"listener.name.{listener.name}", mechanism_of(listener)
    asked = listener.authentication is not None and listener.authentication.type == "tls"
    settings = {f"{prefix}.ssl.client.auth": "required" if asked else "none"} if listener.tls else {}
    if mechanism is not None:
        settings[f"{prefix}.sasl.enabled.mechanisms"] = mechanism
    if mechanism == PLAIN:
        settings[f"{prefix}.sasl.plain.credentials"] = "scram"
    return settings


def authorization_settings(cluster: Cluster, own_users: Sequence[str]) -> dict[str, str]:
    """Return a broker's settings for the authorizer.

    The super users are `own_users`, `admin`, and the super users that the Cluster declares.
    """
    if cluster.spec.authorization is None:
        return {}
    names = (*own_users, *users_of(cluster))
    open_else = cluster.spec.authorization.allow_everyone_if_no_acl_found
    return {
        "authorizer.class.name": _AUTHORIZER,
        "super.users": ";".join(f"User:{name}" for name in names),
        "allow.everyone.if.no.acl.found": str(open_else).lower(),
    }


def owner_of(cluster: Cluster, setting: str) -> str | None:
    """Return the field of the Cluster that sets a broker setting, or None if spec.config may set it."""
    if cluster.spec.authorization is not None and setting in _OF_AUTHORIZATION:
        return "spec.authorization"
    return "spec.listeners" if is_secured(cluster) and setting.startswith(_OF_LISTENERS) else None


def java_settings(listener: Listener, files: UserFiles, bootstrap: str, password: str) -> dict[str, str]:
    """Return the client settings that Kafka's tools read with `--command-config`."""
    mechanism = mechanism_of(listener)
    settings = {"bootstrap.servers": bootstrap, "security.protocol": protocol_of(listener)}
    if listener.tls:
        settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": files.authority}
    if mechanism is None:
        keystore = {"ssl.keystore.type": "PEM", "ssl.keystore.location": files.both}
        return settings | (keystore if listener.authentication is not None else {})
    return {**settings, "sasl.mechanism": mechanism, "sasl.jaas.config": login_of(mechanism, files.name, password)}


def login_of(mechanism: str, user: str, password: str) -> str:
    """Return the value of `sasl.jaas.config` with which a Java client logs in."""
    module = _PLAIN_LOGIN if mechanism == PLAIN else _SCRAM_LOGIN
    return f"{module} required username={_quoted(user)} password={_quoted(password)};"


def _quoted(text: str) -> str:
    """Return the text in quotes, escaped for a JAAS configuration."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def librdkafka_settings(listener: Listener, files: UserFiles, bootstrap: str, password: str) -> dict[str, str]:
    """Return the client settings for kcat and other clients based on librdkafka."""
    mechanism = mechanism_of(listener)
    settings = {"bootstrap.servers": bootstrap, "security.protocol": protocol_of(listener)}
    if listener.tls:
        settings["ssl.ca.location"] = files.authority
    if mechanism is None:
        certificate = {"ssl.certificate.location": files.certificate, "ssl.key.location": files.key}
        return settings | (certificate if listener.authentication is not None else {})
    return {**settings, "sasl.mechanisms": mechanism, "sasl.username": files.name, "sasl.password": password}


def security_problems(cluster: Cluster) -> Iterator[tuple[Path, str]]:
    """Yield the field and the message of each setting that the schema allows but brokers would refuse."""
    for index, listener in enumerate(cluster.spec.listeners):
        kind = listener.authentication.type if listener.authentication else None
        path = ("spec", "listeners", index, "authentication")
        if kind in ("tls", "plain") and not listener.tls:
            why = "needs a listener with TLS" if kind == "tls" else "sends passwords in clear without TLS"
            yield (
                (*path, "type"),
                (
                    f"{dotted(path)}.type is {kind}, which {why}; set the listener's tls to true, "
                    "or its authentication.type to scram-sha-512"
                ),
            )
        if is_secured(cluster) and listener.name == REPLICATION.lower():
            allowed = "any other name, because the listener between brokers is named replication"
            yield (
                ("spec", "listeners", index, "name"),
                f"spec.listeners[{index}].name is replication; allowed: {allowed}",
            )
        if kind is None and cluster.spec.authorization is not None:
            allowed = (
                "set authentication.type of the listener to tls, scram-sha-512 or plain, or remove spec.authorization"
            )
            yield ("spec", "authorization"), f"{dotted(path)} is missing, but spec.authorization is set; {allowed}"
    for index, name in enumerate(cluster.spec.authorization.super_users if cluster.spec.authorization else ()):
        where = ("spec", "authorization", "superUsers", index)
        if name in MEANINGS:
            yield where, f"{dotted(where)} is {name}; {not_one_user(name)}"
        if name in OWN_USERS:
            yield (
                where,
                (
                    f"{dotted(where)} is {name}, which is a user of Barnabas itself; allowed: all names "
                    f"except {', '.join(OWN_USERS)}"
                ),
            )


REPLICATION_TLS: Final = "REPLICATION-TLS"
"""The name of the listener between brokers that requires certificates; no declared listener may have this name."""


class SecurityStage(IntEnum):
    """The use of TLS between brokers: none, offered, used, or required; SECURED also turns on authorization."""

    OPEN = 0
    OFFERED = 1
    USED = 2
    SECURED = 3


class StageRow(NamedTuple):
    """The listeners between brokers at one stage of turning security on or off, and whether brokers enforce ACLs."""

    in_clear: bool
    tls_port: int | None
    dials: str
    has_rights: bool


STAGES: Final[Mapping[SecurityStage, StageRow]] = {
    SecurityStage.OPEN: StageRow(True, None, REPLICATION, False),
    SecurityStage.OFFERED: StageRow(True, PASSING_PORT, REPLICATION, False),
    SecurityStage.USED: StageRow(True, PASSING_PORT, REPLICATION_TLS, False),
    SecurityStage.SECURED: StageRow(False, REPLICATION_PORT, REPLICATION_TLS, True),
}
_NAMES: Final[Mapping[SecurityStage, SecurityStageName | None]] = {
    SecurityStage.OPEN: None,
    SecurityStage.OFFERED: "Offered",
    SecurityStage.USED: "Used",
    SecurityStage.SECURED: "Secured",
}
_OF_NAMES: Final[Mapping[str | None, SecurityStage]] = {name: stage for stage, name in _NAMES.items()}


def wanted_stage(cluster: Cluster) -> SecurityStage:
    """Return the stage that the Cluster declares: SECURED or OPEN."""
    return SecurityStage.SECURED if is_secured(cluster) else SecurityStage.OPEN


def next_stage(present: SecurityStage, wanted: SecurityStage, of_pods: Collection[SecurityStage]) -> SecurityStage:
    """Return the next stage on the way from `present` to `wanted`, or `present` if some pod has not reached `present`.

    Brokers can connect to each other only if their stages differ by at most one.
    """
    further = SecurityStage(present + (wanted > present) - (wanted < present))
    return further if all(abs(each - further) <= 1 for each in of_pods) else present


def stage_name(stage: SecurityStage) -> SecurityStageName | None:
    """Return the name of a stage for the status, or None for the stage OPEN."""
    return _NAMES[stage]


def stage_in(text: str) -> SecurityStage:
    """Return the stage that a pod's annotation names, or OPEN if it names none."""
    return _OF_NAMES.get(text or None, SecurityStage.OPEN)


def reported_stage(cluster: Cluster) -> SecurityStage:
    """Return the stage in the status of the Cluster, or the declared stage if the Cluster has no status yet."""
    return _OF_NAMES[cluster.status.security_stage] if cluster.status is not None else wanted_stage(cluster)


def is_reached_by_tls(cluster: Cluster) -> bool:
    """True if the operator must connect to the brokers with TLS, and False if it must use plaintext."""
    return STAGES[reported_stage(cluster)].dials == REPLICATION_TLS


def is_passing(cluster: Cluster) -> bool:
    """True if the security stage in the status is not the stage that the spec asks for.

    The brokers may then be at different stages.
    """
    return reported_stage(cluster) is not wanted_stage(cluster)


def ports_between_brokers(cluster: Cluster) -> tuple[int, ...]:
    """Return the ports that the operator tries, in this order, to connect to a broker."""
    return (PASSING_PORT, REPLICATION_PORT) if reported_stage(cluster) is SecurityStage.USED else (REPLICATION_PORT,)


def addresses_between_brokers(cluster: Cluster) -> str:
    """Return the bootstrap addresses of all brokers, with the ports for connections between brokers."""
    name, namespace = cluster.metadata.name, cluster.metadata.namespace or "default"
    hosts = [pod_host(name, namespace, number) for number in range(cluster.spec.brokers.replicas)]
    return ",".join(f"{host}:{port}" for port in ports_between_brokers(cluster) for host in hosts)


def refuse_passing_port(cluster: Cluster, stage: SecurityStage) -> Refusal | None:
    """Refuse a listener on `PASSING_PORT` while the Cluster changes from `stage` to its declared stage.

    Brokers use this port for replication during the change.
    """
    if stage is wanted_stage(cluster):
        return None
    for index, each in enumerate(cluster.spec.listeners):
        if each.port == PASSING_PORT:
            why = "which brokers use for replication while the security of the Cluster is being turned on or off"
            allowed = "another port; this port is allowed only if status.securityStage is Secured or absent"
            return Refusal(NOT_SUPPORTED, f"spec.listeners[{index}].port is {PASSING_PORT}, {why}; allowed: {allowed}")
    return None
