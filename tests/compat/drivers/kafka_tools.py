"""Apache Kafka's command-line tools: command lines as users type them, run inside one JVM to save its start."""

import shlex
import subprocess
from dataclasses import dataclass
from pathlib import PurePath

from drivers.remote import RemoteClient
from harness.deadline import PATIENCE_S
from harness.kafka_jars import java_command

TOOLS = "org.apache.kafka.tools."
MAIN_CLASSES = {
    "kafka-acls.sh": TOOLS + "AclCommand",
    "kafka-broker-api-versions.sh": TOOLS + "BrokerApiVersionsCommand",
    "kafka-client-metrics.sh": TOOLS + "ClientMetricsCommand",
    "kafka-cluster.sh": TOOLS + "ClusterTool",
    "kafka-configs.sh": TOOLS + "ConfigCommand",
    "kafka-console-consumer.sh": TOOLS + "consumer.ConsoleConsumer",
    "kafka-console-producer.sh": TOOLS + "ConsoleProducer",
    "kafka-console-share-consumer.sh": TOOLS + "consumer.ConsoleShareConsumer",
    "kafka-consumer-groups.sh": TOOLS + "consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test.sh": TOOLS + "ConsumerPerformance",
    "kafka-delete-records.sh": TOOLS + "DeleteRecordsCommand",
    "kafka-dump-log.sh": TOOLS + "DumpLogSegments",
    "kafka-features.sh": TOOLS + "FeatureCommand",
    "kafka-get-offsets.sh": TOOLS + "GetOffsetShell",
    "kafka-groups.sh": TOOLS + "GroupsCommand",
    "kafka-leader-election.sh": TOOLS + "LeaderElectionCommand",
    "kafka-log-dirs.sh": TOOLS + "LogDirsCommand",
    "kafka-metadata-quorum.sh": TOOLS + "MetadataQuorumCommand",
    "kafka-producer-perf-test.sh": TOOLS + "ProducerPerformance",
    "kafka-reassign-partitions.sh": TOOLS + "reassign.ReassignPartitionsCommand",
    "kafka-share-groups.sh": TOOLS + "consumer.group.ShareGroupCommand",
    "kafka-topics.sh": TOOLS + "TopicCommand",
    "kafka-transactions.sh": TOOLS + "TransactionsCommand",
    "kafka-verifiable-consumer.sh": TOOLS + "VerifiableConsumer",
    "kafka-verifiable-producer.sh": TOOLS + "VerifiableProducer",
}


@dataclass(frozen=True, slots=True)
class ToolRun:
    """The result of a tool: exit status and both outputs."""

    status: int
    output: str
    errors: str

    @property
    def text(self) -> str:
        """The text that a user would see."""
        return self.output + self.errors


class KafkaTools:
    """Runs command lines; `localhost:9092` in them stands for the broker under test."""

    def __init__(self, java: RemoteClient, bootstrap: str) -> None:
        self._java = java
        self._bootstrap = bootstrap

    def _parse(self, command_line: str) -> tuple[str, list[str]]:
        script, *arguments = shlex.split(command_line)
        arguments = [argument.replace("localhost:9092", self._bootstrap) for argument in arguments]
        return MAIN_CLASSES[PurePath(script).name], arguments

    def run(self, command_line: str, standard_input: str = "") -> ToolRun:
        """Run the tool, and return its result, even if it fails."""
        main_class, arguments = self._parse(command_line)
        return ToolRun(**self._java.ask("run_tool", **{"class": main_class}, arguments=arguments, input=standard_input))

    def check(self, command_line: str, standard_input: str = "") -> str:
        """Return the output of a tool that must succeed."""
        ran = self.run(command_line, standard_input)
        assert ran.status == 0, f"{command_line}: exit {ran.status}\n{ran.text}"
        assert "Exception" not in ran.text, f"{command_line}:\n{ran.text}"
        return ran.output

    def check_alone(self, command_line: str) -> str:
        """Run like `check` in a separate JVM, for tools that finish their work only when their JVM ends."""
        main_class, arguments = self._parse(command_line)
        command = java_command(main_class, *arguments, options=("-XX:TieredStopAtLevel=1", "-Xmx256m"))
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        assert ran.returncode == 0, f"{command_line}: exit {ran.returncode}\n{ran.stdout}{ran.stderr}"
        return ran.stdout
