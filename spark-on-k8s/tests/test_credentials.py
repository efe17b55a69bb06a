"""`--command-config`: jobs read Kafka's client properties from a file, for brokers that require TLS and SASL."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs_world import FIRST_MS, JARS, SHORT_LIVED, World, broker_for_jobs
from pyspark.sql import SparkSession

from barnabas_jobs.credentials import (
    VARIABLE,
    for_executors,
    for_kafka_python,
    for_librdkafka,
    for_spark,
    use_command_config,
)
from barnabas_jobs.kafka.placement import placement_of
from barnabas_jobs.kafka.topics import Cluster
from barnabas_jobs.kafka.writer import TopicWriter
from barnabas_jobs.planning.errors import BadOption
from harness.certificates import Authority
from harness.server_process import free_port

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
PASSWORD = "planted password"
JAAS = f'sasl.jaas.config={MODULE} required username="jobs" password="{PASSWORD}";\n'
SECURED = f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n{JAAS}"
RECORDS = 60


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of a properties file that a test writes; the environment is restored after the test."""
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.delenv(VARIABLE)
    return tmp_path / "client.properties"


def test_each_library_gets_the_properties_by_its_own_names(file: Path) -> None:
    trust = "ssl.truststore.type=PEM\nssl.truststore.location=/ca.pem\nssl.endpoint.identification.algorithm=\n"
    file.write_text(f"{SECURED}{trust}acks=all\n")
    use_command_config(file)
    assert for_librdkafka() == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "jobs",
        "sasl.password": PASSWORD,
        "ssl.ca.location": "/ca.pem",
        "ssl.endpoint.identification.algorithm": "none",
    }
    assert for_kafka_python() == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "jobs",
        "sasl_plain_password": PASSWORD,
        "ssl_cafile": "/ca.pem",
        "ssl_check_hostname": False,
    }
    assert for_spark()["kafka.sasl.jaas.config"] == f"${{file:{file}:sasl.jaas.config}}"
    assert PASSWORD not in str(for_spark()) + str(for_executors())
    assert for_executors() == {f"spark.executorEnv.{VARIABLE}": str(file)}


def test_no_settings_are_added_without_a_command_config(file: Path) -> None:
    assert (for_librdkafka(), for_kafka_python(), for_spark(), for_executors()) == ({}, {}, {}, {})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("security.protocol=TLS\n", "security.protocol=TLS; allowed: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ("sasl.oauthbearer.scope=x\n", "sasl.oauthbearer.scope is not supported; allowed: security.protocol"),
        ("ssl.truststore.location=/t.jks\n", "ssl.truststore.type has its default JKS; allowed: PEM"),
        (f"security.protocol=SASL_SSL\n{JAAS}", "sasl.mechanism is missing; allowed: PLAIN"),
        (
            SECURED.replace("=PLAIN\n", "=SCRAM-SHA-256\n"),
            "has the login module of PLAIN; sasl.mechanism=",
        ),
        (SECURED.replace("username", "user"), 'has no username; add username="..." before the semicolon'),
    ],
)
def test_an_unusable_property_is_named_without_its_secrets(file: Path, text: str, problem: str) -> None:
    file.write_text(text)
    with pytest.raises(BadOption) as refused:
        use_command_config(file)
    assert problem in str(refused.value)
    assert PASSWORD not in str(refused.value)
    assert VARIABLE not in os.environ


@pytest.fixture
def secured(tmp_path: Path, file: Path) -> Iterator[str]:
    """The address of a broker that requires SASL over TLS; the tests themselves use its other listener."""
    authority, port = Authority(tmp_path / "authority"), free_port()
    (folder := tmp_path / "broker").mkdir()
    server = broker_for_jobs(folder)
    settings = {
        "listeners": f"PLAINTEXT://{server.bootstrap},SECURE://localhost:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.name.secure.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secure.plain.sasl.jaas.config": f'{MODULE} required user_jobs="{PASSWORD}";',
        "listener.name.secure.ssl.keystore.type": "PEM",
        "listener.name.secure.ssl.keystore.location": str(authority.issue("broker").file),
    }
    server.command += [word for name, value in settings.items() for word in ("--override", f"{name}={value}")]
    file.write_text(f"{SECURED}ssl.truststore.type=PEM\nssl.truststore.location={authority.file}\n")
    server.start()
    try:
        yield f"{server.bootstrap} localhost:{port}"
        assert server.stop() == 0
    finally:
        server.close()


def job(name: str, file: Path, **options: str) -> dict[str, object]:
    """Run a job as users do, in a process with its own JVM, and return its result."""
    words = [word for each, value in options.items() for word in ("--option", f"{each}={value}")]
    command = [sys.executable, "-m", "barnabas", "jobs", "run", name, "--command-config", str(file)]
    ended = subprocess.run(
        [*command, "--master", "local[1]", "--jars", str(JARS), *words],
        env={**os.environ, "JDK_JAVA_OPTIONS": SHORT_LIVED},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert PASSWORD not in ended.stdout + ended.stderr
    found: dict[str, object] = json.loads(ended.stdout)
    return found


def test_the_jobs_own_clients_connect_over_sasl_and_tls(secured: str, file: Path, tmp_path: Path) -> None:
    in_clear, bootstrap = secured.split()
    world = World(in_clear, "flights", tmp_path / "archive")
    world.make(1)
    use_command_config(file)
    assert Cluster(bootstrap).topic("flights").partitions == [0]
    assert placement_of(bootstrap).spaces
    writer = TopicWriter(bootstrap, "flights", {0: 0}, {0: 1}, {0: 0})
    assert list(writer([(0, FIRST_MS, b"key", b"value", None)])) == [(0, 1, 0)]


def test_a_topic_is_archived_over_sasl_and_tls(spark: SparkSession, secured: str, file: Path, tmp_path: Path) -> None:
    in_clear, bootstrap = secured.split()
    world = World(in_clear, "flights", tmp_path / "archive")
    world.make()
    world.write(RECORDS)
    use_command_config(file)
    assert world.archive(spark, bootstrap=bootstrap).records == RECORDS


@pytest.mark.soak(only=True)
@pytest.mark.usefixtures("spark")
def test_a_command_archives_over_sasl_and_tls_and_prints_no_password(secured: str, file: Path, tmp_path: Path) -> None:
    in_clear, bootstrap = secured.split()
    world = World(in_clear, "flights", tmp_path / "archive")
    world.make()
    world.write(RECORDS)
    assert job("archive", file, bootstrap=bootstrap, topic="flights", archive=world.location)["records"] == RECORDS
