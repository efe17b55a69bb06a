"""`barnabas kafka-image`: runs one broker with the KAFKA_* variables of Apache Kafka's image, in its place.

The rules are those of Kafka's image (`kafka.docker.KafkaDockerWrapper` and the script `configure`). Kafka ignores
variables that are no settings, so these are only named in a warning.
"""

import logging
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from barnabas_broker.app.main import MAX_CONNECTIONS, resolved, run
from barnabas_core.config.broker_config import BrokerConfig, is_unknown, parse_broker_config
from barnabas_core.config.definitions import ConfigProblem, InvalidConfig, Property, parse_properties

log = logging.getLogger(__name__)

READY: Final = "Transitioning from RECOVERY to RUNNING"
"""The words of Kafka's log for which Testcontainers waits."""
MOUNTED: Final = Path("/mnt/shared/config/server.properties")
SECRETS: Final = "/etc/kafka/secrets"
PREFIX: Final = "KAFKA_"
NO_SETTINGS: Final = frozenset(
    f"KAFKA_{name}"
    for name in (
        "VERSION",
        "HEAP_OPTS",
        "LOG4J_OPTS",
        "OPTS",
        "JMX_OPTS",
        "JVM_PERFORMANCE_OPTS",
        "GC_LOG_OPTS",
        "LOG4J_ROOT_LOGLEVEL",
        "LOG4J_LOGGERS",
        "TOOLS_LOG4J_LOGLEVEL",
        "JMX_HOSTNAME",
    )
)
"""The variables of Kafka's image that are no settings of the broker."""
ALONE: Final = """node.id=1
listeners=PLAINTEXT://:9092
advertised.listeners=PLAINTEXT://localhost:9092
log.dirs=/tmp/kraft-combined-logs
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
"""
"""The settings without any variable and file; the addresses and replication factors are those of Kafka's image."""
STORES: Final = {"KEYSTORE": ("KEYSTORE", "KEY"), "TRUSTSTORE": ("TRUSTSTORE",)}
"""The files of certificates, each with the variables that name the files of its passwords."""


def main(arguments: Sequence[str]) -> int:
    """Run a broker with the variables of the environment, and NAME=VALUE arguments over them; return the exit code."""
    variables = dict(os.environ)
    for argument in arguments:
        name, _, value = argument.partition("=")
        variables[name] = value

    def read(connections: int) -> BrokerConfig:
        mounted = MOUNTED.read_text(encoding="utf-8") if MOUNTED.exists() else ""
        properties = broker_properties(variables, mounted)
        return parse_broker_config({MAX_CONNECTIONS: str(connections), **resolved(properties, variables)})

    return run(read, "the KAFKA_* variables", lambda: log.info("%s: the broker serves clients", READY))


def broker_properties(variables: Mapping[str, str], mounted: str) -> dict[str, Property]:
    """Return the broker's settings: those of the mounted file, and those of the variables over them.

    Raises MalformedProperties, InvalidConfig, and OSError if a file of passwords cannot be read.
    """
    lines = [f"{name}={value}" for name, value in settings(with_derived(variables)).items()]
    text = f"{mounted}\n" + "\n".join(lines)
    found = parse_properties(text if text.strip() else ALONE)
    check_single(found)
    if variables.get("CLUSTER_ID"):
        found["cluster.id"] = Property(variables["CLUSTER_ID"], None)
    unknown = sorted(filter(is_unknown, found))
    if unknown:
        log.warning(
            "these variables or properties are no settings of a broker, and are ignored: %s", ", ".join(unknown)
        )
    return {name: each._replace(line=None) for name, each in found.items() if name not in unknown}


def settings(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the setting of each KAFKA_ variable: `_` stands for `.`, `__` for `_`, and `___` for `-`."""
    return {
        setting_name(name): value
        for name, value in variables.items()
        if name.startswith(PREFIX) and name not in NO_SETTINGS
    }


def setting_name(variable: str) -> str:
    """Return the name of the setting that a variable sets."""
    dotted = variable.removeprefix(PREFIX).lower().replace("_", ".")
    return dotted.replace("...", "-").replace("..", "_")


def with_derived(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with those that Kafka's image derives: the listeners, and the files of certificates."""
    found, advertised = dict(variables), variables.get("KAFKA_ADVERTISED_LISTENERS", "")
    if advertised and not variables.get("KAFKA_LISTENERS"):
        found["KAFKA_LISTENERS"] = re.sub(r"://[^:]*:", "://0.0.0.0:", advertised)
    for store, passwords in STORES.items() if "SSL://" in advertised else ():
        file = found.pop(f"KAFKA_SSL_{store}_FILENAME", "")
        if file:
            found[f"KAFKA_SSL_{store}_LOCATION"] = f"{SECRETS}/{file}"
        for each in passwords:
            credentials = found.pop(f"KAFKA_SSL_{each}_CREDENTIALS", "")
            if credentials:
                text = Path(SECRETS, credentials).read_text(encoding="utf-8")
                found[f"KAFKA_SSL_{each}_PASSWORD"] = text.rstrip("\n")
    return found


def check_single(properties: Mapping[str, Property]) -> None:
    """Raise InvalidConfig if the settings describe a cluster of several nodes that share no metadata store."""
    value = {name: each.value for name, each in properties.items()}
    if value.get("metadata.store"):
        return
    roles, voters = value.get("process.roles", "broker"), value.get("controller.quorum.voters", "")
    own = value.get("node.id", value.get("broker.id", "0"))
    if "broker" not in roles:
        raise InvalidConfig([ConfigProblem("process.roles", roles, "must include broker: there are no controllers")])
    if any(voter.partition("@")[0].strip() != own for voter in voters.split(",") if voter.strip()):
        allowed = "must name this node alone, unless metadata.store names a store that all brokers share"
        raise InvalidConfig([ConfigProblem("controller.quorum.voters", voters, allowed)])
