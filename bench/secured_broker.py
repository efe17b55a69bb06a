"""A broker with secured listeners beside its open one: TLS, and TLS with SCRAM, with many ACLs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from bench.clients.job import PartMissing
from bench.peers import SETTINGS, prepare_barnabas
from harness.apache_kafka import SINGLE_NODE, Node, format_log_dirs
from harness.certificates import Authority
from harness.kafka_jars import JarsMissing
from harness.server_process import HERE, ServerProcess, free_port

ACLS: Final = 10_000
ACLS_PER_REQUEST: Final = 1_000
HEAP: Final = "1G"
REQUEST_SECONDS_MAX: Final = 60.0
USER: Final = "bench"
PASSWORD: Final = "bench-password"
ITERATIONS: Final = 4096
MECHANISM: Final = "SCRAM-SHA-512"
# Only Apache Kafka has the listener CONTROLLER.
PROTOCOLS: Final = "PLAINTEXT:PLAINTEXT,CONTROLLER:SSL,SSL:SSL,SASL_SSL:SASL_SSL"
LOGIN_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
TOPICS: Final = "bench-"


class WayIn(Enum):
    """The listener that a load uses. The user of SASL_SSL has rights by ACLs; others are anonymous super users."""

    PLAINTEXT = "plaintext"
    SSL = "ssl"
    SASL_SSL = "sasl_ssl"


@dataclass(frozen=True, slots=True)
class SecuredBroker:
    """`process` serves PLAINTEXT to the bench itself, and each secured listener on its own port."""

    process: ServerProcess
    ports: Mapping[WayIn, int]
    authority: Path

    def start(self) -> None:
        """Start the broker, and make its user and its ACLs."""
        self.process.start()
        admin = AdminClient({"bootstrap.servers": self.process.bootstrap, "log_level": 0})
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, ITERATIONS)
        upsertion = UserScramCredentialUpsertion(USER, credential, PASSWORD.encode())
        for done in admin.alter_user_scram_credentials([upsertion]).values():
            done.result(REQUEST_SECONDS_MAX)
        rights = [_right(TOPICS, ResourcePatternType.PREFIXED, operation) for operation in (_READ, _WRITE)]
        rights += [_right(f"other-{number}", ResourcePatternType.LITERAL, _READ) for number in range(ACLS)]
        for first in range(0, len(rights), ACLS_PER_REQUEST):
            for made in admin.create_acls(rights[first : first + ACLS_PER_REQUEST]).values():
                made.result(REQUEST_SECONDS_MAX)

    def close(self) -> None:
        """Stop the broker."""
        self.process.close()

    def bootstrap(self, way_in: WayIn) -> str:
        """Return the address of this listener."""
        return f"{HERE.host}:{self.ports[way_in]}"


def client_settings(way_in: WayIn, authority: Path) -> Mapping[str, Mapping[str, str]]:
    """Return the settings of each client. The Java client's jobs have no spaces, so they have no JAAS line either."""
    librdkafka = {"security.protocol": way_in.value, "ssl.ca.location": str(authority)}
    if way_in is WayIn.SASL_SSL:
        login = {"sasl.mechanism": MECHANISM, "sasl.username": USER, "sasl.password": PASSWORD}
        return {"librdkafka": librdkafka | login}
    return {"librdkafka": librdkafka, "Java": {"security.protocol": way_in.value.upper(), **_trust(authority)}}


def _trust(authority: Path) -> dict[str, str]:
    return {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(authority)}


_READ: Final = AclOperation.READ
_WRITE: Final = AclOperation.WRITE


def _right(topic: str, pattern: ResourcePatternType, operation: AclOperation) -> AclBinding:
    user = f"User:{USER}"
    return AclBinding(ResourceType.TOPIC, topic, pattern, user, "*", operation, AclPermissionType.ALLOW)


def tls_settings(authority: Authority) -> dict[str, str]:
    """Return the settings of brokers that share one certificate and trust all certificates of the authority."""
    return {
        "listener.security.protocol.map": PROTOCOLS,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.issue("broker").file),
        **_trust(authority.file),
    }


def _settings(authority: Authority) -> dict[str, str]:
    return {
        **tls_settings(authority),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "sasl.enabled.mechanisms": MECHANISM,
    }


def _ports() -> dict[WayIn, int]:
    return {way_in: free_port() for way_in in (WayIn.SSL, WayIn.SASL_SSL)}


def listener(way_in: WayIn, port: int) -> str:
    """Return the entry of `listeners`; its name is the protocol's."""
    return f"{way_in.value.upper()}://{HERE.host}:{port}"


def _listeners(ports: Mapping[WayIn, int]) -> list[str]:
    return [listener(way_in, port) for way_in, port in ports.items()]


def _barnabas(folder: Path) -> SecuredBroker:
    authority, ports = Authority(folder / "authority"), _ports()
    properties = {**_settings(authority), "listeners": ",".join(_listeners(ports))}
    return SecuredBroker(prepare_barnabas(folder, properties=properties), ports, authority.file)


def _kafka(folder: Path) -> SecuredBroker:
    authority, ports = Authority(folder / "authority"), _ports()
    node = Node(folder, 1, free_port(), free_port(), listeners=_listeners(ports))
    properties = {
        **SINGLE_NODE,
        **SETTINGS,
        **_settings(authority),
        f"listener.name.sasl_ssl.{MECHANISM.lower()}.sasl.jaas.config": f"{LOGIN_MODULE} required;",
    }
    try:
        node.write_config([node.voter], properties)
        format_log_dirs(node)
        return SecuredBroker(node.process(HEAP), ports, authority.file)
    except JarsMissing as missing:
        raise PartMissing(str(missing)) from None


SECURED_KINDS: Final[Mapping[str, Callable[[Path], SecuredBroker]]] = {"barnabas": _barnabas, "kafka": _kafka}
