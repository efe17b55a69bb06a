"""The lag exporter reads an Apache Kafka that requires TLS, a client certificate and SASL, at an IPv6 address."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

from drivers.broker_under_test import prepare_server
from harness.deadline import PATIENCE_S, wait_for
from harness.running_exporter import RunningExporter
from harness.server_process import ServerProcess, free_port
from harness.stock_client import StockClient
from local_kubernetes.certificates import Authority, Identity

LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_reader="geheim";'


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


def secured(broker: Identity, authority: Authority, folder: Path) -> dict[str, str]:
    """Return properties for a second listener at ::1; brokers and the tests use the first one, which is unchanged."""
    (store := folder / "broker.pem").write_text(broker.key.read_text() + broker.certificate.read_text())
    return {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL",
        "listener.name.secure.ssl.keystore.type": "PEM",
        "listener.name.secure.ssl.keystore.location": str(store),
        "listener.name.secure.ssl.truststore.type": "PEM",
        "listener.name.secure.ssl.truststore.location": str(authority.certificate),
        "listener.name.secure.ssl.client.auth": "required",
        "listener.name.secure.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secure.plain.sasl.jaas.config": LOGIN,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "true",
    }


@pytest.fixture
def kafka(tmp_path: Path, authority: Authority) -> Iterator[tuple[ServerProcess, int]]:
    """A running Apache Kafka, and the port of its second listener."""
    port = free_port()
    properties = secured(authority.issue("broker", "/CN=broker", ["IP:::1"]), authority, tmp_path)
    server = prepare_server("kafka", tmp_path / "kafka", properties)
    config = tmp_path / "kafka" / "server.properties"
    text = config.read_text()
    config.write_text(text.replace("listeners=PLAINTEXT", f"listeners=SECURE://[::1]:{port},PLAINTEXT", 1))
    server.start()
    try:
        yield server, port
    finally:
        server.close()


def allow_describe_alone(client: StockClient) -> None:
    """Allow only this user only to describe the cluster."""
    allowed = AclBinding(
        ResourceType.BROKER,
        "kafka-cluster",
        ResourcePatternType.LITERAL,
        "User:reader",
        "*",
        AclOperation.DESCRIBE,
        AclPermissionType.ALLOW,
    )
    client.admin.create_acls([allowed])[allowed].result(PATIENCE_S)


@pytest.mark.slow
@pytest.mark.soak(only=True)
def test_the_lag_exporter_connects_by_tls_and_sasl_and_reports_refusals(
    kafka: tuple[ServerProcess, int], authority: Authority, tmp_path: Path
) -> None:
    server, port = kafka
    client = StockClient(server.bootstrap)
    client.create_topic("flights", 1)
    client.write("flights", [b"1", b"2", b"3"])
    client.commit("billing", TopicPartition("flights", 0, 1))
    allow_describe_alone(client)
    own = authority.issue("reader", "/CN=reader")
    (password := tmp_path / "password").write_text("geheim\n")
    tls = ("--tls.enabled", "--tls.ca-file", f"{authority.certificate}")
    pair = ("--tls.cert-file", f"{own.certificate}", "--tls.key-file", f"{own.key}")
    sasl = ("--sasl.enabled", "--sasl.username", "reader", "--sasl.password-file", f"{password}")
    exporter = RunningExporter(f"[::1]:{port}", tmp_path, *tls, *pair, *sasl).start()
    try:
        exporter.wait_for_value("kafka_consumergroup_lag", 2, consumergroup="billing", partition="0")
        exporter.next_round()
        assert exporter.value("kafka_offsets_retention_seconds") is None
        assert exporter.value("kafka_consumergroup_offsets_expire_seconds", consumergroup="billing") is None
        assert exporter.log().count("give the exporter's user the right DescribeConfigs on the cluster") == 1
        assert exporter.values("barnabas_lag_exporter_request_failures_total", request="DescribeConfigs") == []
        assert exporter.process.stop() == 0
        assert "Traceback" not in exporter.log()
    finally:
        exporter.process.close()
    others = Authority(tmp_path / "others")
    strange = ("--tls.enabled", "--tls.ca-file", f"{others.certificate}")
    check_refused(f"[::1]:{port}", tmp_path, (*strange, *pair, *sasl), "CERTIFICATE_VERIFY_FAILED")
    password.write_text("falsch")
    check_refused(f"[::1]:{port}", tmp_path, (*tls, *pair, *sasl), "SaslAuthenticationFailedError")


def check_refused(bootstrap: str, tmp_path: Path, options: tuple[str, ...], why: str) -> None:
    (folder := tmp_path / why).mkdir()
    refused = RunningExporter(bootstrap, folder, *options).start()
    try:
        wait_for(refused.log, lambda log: why in log, pause_s=0.2)
        assert refused.value("barnabas_lag_exporter_up") == 0
        assert "falsch" not in refused.log()
    finally:
        refused.process.close()
