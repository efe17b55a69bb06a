"""The credentials of a run's Kafka clients: a file of Kafka's client properties, which driver and executors read.

An environment variable names the file, so that executors find it. Spark itself gets only the path, never a secret.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from barnabas_core.config.definitions import MalformedProperties, parse_properties
from barnabas_core.config.listeners import InvalidJaas, parse_jaas
from barnabas_jobs.planning.errors import BadOption

OPTION: Final = "--command-config"
VARIABLE: Final = "BARNABAS_JOBS_COMMAND_CONFIG"
PROVIDER: Final = "org.apache.kafka.common.config.provider.FileConfigProvider"
ABOUT_SECURITY: Final = ("security.", "sasl.", "ssl.")
JAAS: Final = "sasl.jaas.config"
HOST_NAMES: Final = "ssl.endpoint.identification.algorithm"
ALLOWED: Final[Mapping[str, tuple[str, ...]]] = {
    "security.protocol": ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    "sasl.mechanism": ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
    JAAS: (),
    "ssl.truststore.type": ("PEM",),
    "ssl.truststore.location": (),
    "ssl.keystore.type": ("PEM",),
    "ssl.keystore.location": (),
    "ssl.key.password": (),
    HOST_NAMES: ("https", ""),
}
"""The supported client properties with their allowed values; an empty tuple allows any value."""


class Names(NamedTuple):
    """The names of a property in librdkafka and in kafka-python."""

    librdkafka: tuple[str, ...]
    kafka_python: tuple[str, ...]


NAMES: Final[Mapping[str, Names]] = {
    "security.protocol": Names(("security.protocol",), ("security_protocol",)),
    "sasl.mechanism": Names(("sasl.mechanism",), ("sasl_mechanism",)),
    "username": Names(("sasl.username",), ("sasl_plain_username",)),
    "password": Names(("sasl.password",), ("sasl_plain_password",)),
    "ssl.truststore.location": Names(("ssl.ca.location",), ("ssl_cafile",)),
    "ssl.keystore.location": Names(("ssl.certificate.location", "ssl.key.location"), ("ssl_certfile", "ssl_keyfile")),
    "ssl.key.password": Names(("ssl.key.password",), ("ssl_password",)),
}


def use_command_config(file: Path) -> None:
    """Make all clients of this run use the properties of the file. Raises BadOption if the file is not usable."""
    given = _read(file)
    for name in given:
        if name not in ALLOWED:
            raise BadOption(f"{OPTION} {file}: {name} is not supported; allowed: {', '.join(ALLOWED)}")
        if ALLOWED[name] and given[name] not in ALLOWED[name]:
            wanted = ", ".join(each or "an empty value" for each in ALLOWED[name])
            raise BadOption(f"{OPTION} {file}: {name}={given[name]}; allowed: {wanted}")
    for store in ("ssl.truststore", "ssl.keystore"):
        if f"{store}.location" in given and f"{store}.type" not in given:
            raise BadOption(f"{OPTION} {file}: {store}.type has its default JKS; allowed: PEM")
    _login(file, given)
    os.environ[VARIABLE] = str(file.absolute())


def for_librdkafka() -> dict[str, str]:
    """Read the properties file, and return the settings for librdkafka. Raises BadOption if the file is not usable."""
    given = _now()
    found = {own: value for name, value in given.items() if name in NAMES for own in NAMES[name].librdkafka}
    return found | ({HOST_NAMES: given[HOST_NAMES] or "none"} if HOST_NAMES in given else {})


def for_kafka_python() -> dict[str, Any]:
    """Read the properties file, and return the settings for kafka-python.

    Raises BadOption if the file is not usable.
    """
    given = _now()
    found: dict[str, Any] = {
        own: value for name, value in given.items() if name in NAMES for own in NAMES[name].kafka_python
    }
    return found | ({"ssl_check_hostname": given[HOST_NAMES] != ""} if HOST_NAMES in given else {})


def for_spark() -> dict[str, str]:
    """Return the options of Spark's Kafka connector; they refer to the file, so they contain no secret."""
    file = os.environ.get(VARIABLE)
    if file is None:
        return {}
    options = {f"kafka.{name}": f"${{file:{file}:{name}}}" for name in _read(Path(file))}
    return {**options, "kafka.config.providers": "file", "kafka.config.providers.file.class": PROVIDER}


def for_executors() -> dict[str, str]:
    """Return the Spark settings that give executors the path of the file with Kafka's client properties."""
    file = os.environ.get(VARIABLE)
    return {} if file is None else {f"spark.executorEnv.{VARIABLE}": file}


def _now() -> dict[str, str]:
    file = os.environ.get(VARIABLE)
    if file is None:
        return {}
    given = _read(Path(file))
    return {**given, **_login(Path(file), given)}


def _read(file: Path) -> dict[str, str]:
    try:
        properties = parse_properties(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, MalformedProperties) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise BadOption(f"{OPTION} {file}: {why}; the file must have Kafka's client properties") from error
    given = {name: each.value.strip() for name, each in properties.items()}
    return {name: value for name, value in given.items() if name.startswith(ABOUT_SECURITY)}


def _login(file: Path, given: Mapping[str, str]) -> dict[str, str]:
    """Return the user's name and password, or nothing without SASL.

    Raises BadOption if the SASL properties are wrong.
    """
    if not given.get("security.protocol", "").startswith("SASL_"):
        return {}
    if "sasl.mechanism" not in given:
        raise BadOption(f"{OPTION} {file}: sasl.mechanism is missing; allowed: {', '.join(ALLOWED['sasl.mechanism'])}")
    try:
        entry = parse_jaas(given.get(JAAS, ""))
    except InvalidJaas as error:
        raise BadOption(f"{OPTION} {file}: {JAAS}: {error}") from error
    if entry.family != given["sasl.mechanism"].partition("-")[0]:
        wanted = f"sasl.mechanism={given['sasl.mechanism']} needs the login module of this mechanism"
        raise BadOption(f"{OPTION} {file}: {JAAS} has the login module of {entry.family}; {wanted}")
    lacking = [option for option in ("username", "password") if not entry.options.get(option)]
    if lacking:
        raise BadOption(f'{OPTION} {file}: {JAAS} has no {lacking[0]}; add {lacking[0]}="..." before the semicolon')
    return {option: entry.options[option] for option in ("username", "password")}
