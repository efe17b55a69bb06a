"""`barnabas kafka-image` takes the variables of Apache Kafka's image by the same rule, and suits Testcontainers."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient

from barnabas_broker.app.kafka_image import settings
from barnabas_core.config.definitions import parse_properties
from harness.deadline import PATIENCE_S, wait_for
from harness.kafka_jars import java_command
from harness.server_process import ServerProcess, free_port
from harness.stock_client import StockClient

NO_SETTINGS_OR_SIMILAR = (
    *("VERSION", "HEAP_OPT", "HEAP_OPTS", "LOG4J_OPTS", "OPTS", "JMX_OPTS", "JMX_PORT", "JVM_PERFORMANCE_OPTS"),
    *("GC_LOG_OPTS", "LOG4J_LOGGERS", "TOOLS_LOG4J_LOGLEVEL", "JMX_HOSTNAME", "CONNECT_X"),
)
VARIABLES = {
    "KAFKA_NODE_ID": "1",
    "KAFKA_ABC_DEF": "one",
    "KAFKA_ABC__DEF": "two",
    "KAFKA_ABC___DEF": "three",
    "KAFKA_A____B": "four",
    "KAFKA_A_____B": "five",
    "KAFKA_X_KAFKA_Y": "inner",
    "KAFKA_lower_Case": "x",
    "KAFKA_EMPTY": "",
    "KAFKA_BACK": "a\\tb",
    "KAFKA_LINES": "first\nsecond=2",
    **{f"KAFKA_{name}": "x" for name in NO_SETTINGS_OR_SIMILAR},
    "KAFKA_LOG4J_ROOT_LOGLEVEL": "INFO",
}


def test_variables_are_the_settings_that_apache_kafkas_image_makes_of_them(tmp_path: Path) -> None:
    options = []
    for name in ("default", "mounted", "final"):
        (tmp_path / name).mkdir()
        options += [f"--{name}-configs-dir", str(tmp_path / name)]
    command = java_command("kafka.docker.KafkaDockerWrapper", "setup", *options)
    environment = {"PATH": os.environ["PATH"], "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw", **VARIABLES}
    subprocess.run(command, env=environment, capture_output=True, check=False, timeout=300)
    theirs = parse_properties((tmp_path / "final" / "server.properties").read_text(encoding="utf-8"))
    ours = parse_properties("\n".join(f"{name}={value}" for name, value in settings(VARIABLES).items()))
    assert {name: each.value for name, each in ours.items()} == {name: each.value for name, each in theirs.items()}


def test_a_broker_starts_with_the_variables_of_testcontainers_and_logs_the_line_that_it_awaits(tmp_path: Path) -> None:
    port, second = free_port(), free_port()
    variables = {
        "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
        "KAFKA_LISTENERS": f"PLAINTEXT://:{port},BROKER://:{second},CONTROLLER://:9094",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_NODE_ID": "1",
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "1",
        "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
        "KAFKA_LOG_FLUSH_INTERVAL_MESSAGES": "9223372036854775807",
        "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://localhost:{port},BROKER://localhost:{second}",
        "KAFKA_LOG_DIRS": str(tmp_path / "logs"),
    }
    command = [sys.executable, "-m", "barnabas", "kafka-image"]
    server = ServerProcess(command, port, tmp_path / "server.log", variables)
    server.start()
    try:
        wait_for(lambda: len(re.findall("Transitioning from RECOVERY to RUNNING", server.log_text())), lambda n: n == 1)
        client = StockClient(server.bootstrap)
        client.create_topic("first", 1)
        assert not any(client.send("first", [b"x"]))
        cluster: Any = AdminClient(client.settings).list_topics(timeout=PATIENCE_S)
        assert cluster.cluster_id == variables["CLUSTER_ID"]
        assert server.stop() == 0
    finally:
        server.close()
