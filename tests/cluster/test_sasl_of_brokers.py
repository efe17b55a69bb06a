"""Three brokers that authenticate to each other by SASL, and one that gets another password."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from harness.cluster import BarnabasCluster, prepare_cluster
from harness.deadline import PATIENCE_S, wait_for
from harness.server_process import free_port

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
JAAS = "listener.name.brokers.plain.sasl.jaas.config"
RECORDS = 200


def line(password: str) -> str:
    return f'{PLAIN} required username="broker" password="{password}" user_broker="geheim";'


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BarnabasCluster]:
    properties = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:SASL_PLAINTEXT",
        "inter.broker.listener.name": "BROKERS",
        "listener.name.brokers.sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        JAAS: line("geheim"),
        "replica.lag.time.max.ms": "2000",
    }
    running = prepare_cluster(tmp_path_factory.mktemp("cluster"), properties=properties)
    for broker in running.brokers.values():
        listeners = f"PLAINTEXT://127.0.0.1:{broker.port},BROKERS://127.0.0.1:{free_port()}"
        broker.command += ["--override", f"listeners={listeners}"]
    try:
        yield running
    finally:
        running.close()


def test_brokers_replicate_over_sasl_and_refuse_a_broker_with_a_wrong_password(
    cluster: BarnabasCluster,
) -> None:
    cluster.start()
    cluster.create_topic("t", 3, 3)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(RECORDS):
        producer.produce("t", b"%d" % number)
    assert producer.flush(PATIENCE_S) == 0
    outsider = max(cluster.brokers)
    cluster.stop(outsider)
    cluster.brokers[outsider].command += ["--override", f"{JAAS}={line('wrong')}"]
    cluster.brokers[outsider].launch()
    others = [broker for number, broker in cluster.brokers.items() if number != outsider]
    wait_for(
        lambda: [broker.log_text() for broker in others],
        lambda texts: any("refused the SASL authentication of" in each for each in texts),
    )
    assert all("geheim" not in broker.log_text() for broker in cluster.brokers.values())
