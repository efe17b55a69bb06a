"""`kafka-groups.sh` and `kafka-consumer-groups.sh` print about our broker what they print about Apache Kafka."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

import pytest

from drivers.broker_under_test import PROPERTIES, prepare_server
from drivers.builds import java_driver
from drivers.interface import Message
from drivers.kafka_tools import KafkaTools
from drivers.librdkafka import LibrdkafkaClient
from drivers.remote import RemoteClient
from harness.deadline import wait_for

MODERN, CLASSIC, EMPTY, LEFT, TOPIC = "modern", "classic", "empty", "left", "flights"
GROUPS: Final = "kafka-groups.sh --bootstrap-server localhost:9092"
TOOL: Final = "kafka-consumer-groups.sh --bootstrap-server localhost:9092"
LISTS: Final = (
    *("", "--consumer", "--share", "--streams", "--group-type consumer", "--group-type classic", "--group-type share"),
    *("--protocol consumer", "--protocol connect", "--group-type nonsense", "--consumer --share"),
    *("--group-type classic --protocol consumer",),
)
LISTED: Final = (
    *("", "--state", "--state Stable", "--state Empty,Stable", "--state Assigning", "--state Dead", "--state nonsense"),
    *("--type", "--type consumer", "--type classic,consumer", "--type nonsense", "--state Stable --type consumer"),
)
DESCRIBED: Final = ("", "--offsets", "--offsets --verbose", "--members", "--members --verbose", "--state")
SHOWN: Final = (*DESCRIBED, "--state --verbose", "--members --state")
DESCRIBED_GROUPS: Final = (*(f"--group {each}" for each in (MODERN, CLASSIC, EMPTY, LEFT, "absent")), "--all-groups")
RESETS: Final = (
    *("--to-earliest", "--to-latest", "--to-current", "--to-offset 3", "--shift-by 2", "--shift-by -1"),
    *("--by-duration P0DT1H0M0S", "--to-datetime 2020-01-01T00:00:00.000", "--to-offset 1000000", "--to-nonsense"),
)
CHANGES: Final = (
    *(f"--group {group} --reset-offsets --to-earliest --topic {TOPIC} --execute" for group in (MODERN, CLASSIC)),
    *(f"--group {LEFT} --reset-offsets {to} --topic {TOPIC} {how}" for to in RESETS for how in ("", "--dry-run")),
    f"--group {LEFT} --reset-offsets --to-earliest --all-topics --dry-run --export",
    f"--group {LEFT} --reset-offsets --to-offset 2 --topic {TOPIC}:0,1 --execute",
    f"--group {LEFT} --reset-offsets --to-latest --topic absent --dry-run",
    "--all-groups --reset-offsets --to-earliest --all-topics --dry-run",
    f"--group never --reset-offsets --to-earliest --topic {TOPIC} --execute",
    *(f"--group {group} --delete-offsets --topic {TOPIC}:0" for group in (MODERN, CLASSIC, EMPTY, "absent")),
    f"--group {LEFT} --delete-offsets --topic {TOPIC}:1 --topic absent",
    *(f"--group {group} --delete" for group in (MODERN, CLASSIC, EMPTY, "absent")),
    f"--group {LEFT} --group absent --delete",
    "--all-groups --delete",
    "--list",
)
VARYING: Final = (
    (re.compile(r"\b[a-z]+-member-[0-9a-f-]{36}(?=\s)|(?<=\s)[A-Za-z0-9+/_-]{22}(?=\s+/)"), "<member>"),
    (re.compile(r"\b(localhost|127\.0\.0\.1):\d+"), "<broker>"),
    (re.compile(r"/127\.0\.0\.1|/localhost"), "<host>"),
)


class Peer:
    """A broker with groups of both protocols, and without members."""

    def __init__(self, bootstrap: str, log: Path) -> None:
        self._driver = RemoteClient("java", java_driver(bootstrap), log)
        self._tools = KafkaTools(self._driver, bootstrap)
        client = LibrdkafkaClient(bootstrap)
        client.create_topic(TOPIC, 2, {})
        client.produce(TOPIC, [Message(b"%d" % n, partition=n % 2) for n in range(20)])
        self._members = [
            self._member(client, MODERN, **{"group.protocol": "consumer"}),
            self._member(client, CLASSIC, **{"group.protocol": "classic"}),
        ]
        for group, protocol in ((LEFT, "consumer"), (EMPTY, "classic")):
            self._member(client, group, **{"group.protocol": protocol}).leave()

    def _member(self, client: LibrdkafkaClient, group: str, **options: Any) -> Any:
        member = client.join(group, f"{group}-member", [TOPIC], **options)
        wait_for(member.records, lambda records: len(records) == 20)
        member.commit()
        return member

    def shows(self, command: str) -> list[str]:
        """Return the exit status and what the tool prints, without what differs by chance.

        Lines come in the order of Java's hash maps, and so do the states that a refusal names.
        """
        ran = self._tools.run(command)
        text = ran.text
        for pattern, name in VARYING:
            text = pattern.sub(name, text)
        if ran.status:
            return [str(ran.status), *sorted(word.strip(",.") for word in text.split())]
        return [str(ran.status), *sorted(" ".join(line.split()) for line in text.splitlines() if line.strip())]

    def close(self) -> None:
        """End the members, and the tools."""
        for member in self._members:
            member.leave()
        self._driver.close()


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Peer, Peer]]:
    """Our broker and Apache Kafka with the same groups."""
    with ExitStack() as stack:
        made = []
        for name in ("barnabas", "kafka"):
            folder = tmp_path_factory.mktemp(name)
            server = stack.enter_context(closing(prepare_server(name, folder, PROPERTIES)))
            server.start()
            made.append(stack.enter_context(closing(Peer(server.bootstrap, folder / "java.log"))))
        yield made[0], made[1]


@pytest.mark.soak(only=True)
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "commands",
    [
        lambda: [f"{GROUPS} --list {each}" for each in LISTS],
        lambda: [f"{TOOL} --list {each}" for each in LISTED],
        lambda: [f"{TOOL} --describe {group} {shown}" for group in DESCRIBED_GROUPS for shown in SHOWN],
        lambda: [f"{TOOL} {change}" for change in CHANGES],
    ],
    ids=["kafka-groups", "list", "describe", "change"],
)
def test_tools_print_what_they_print_about_apache_kafka(
    peers: tuple[Peer, Peer], commands: Callable[[], list[str]]
) -> None:
    differing = []
    for command in commands():
        ours, theirs = (peer.shows(command) for peer in peers)
        if ours != theirs:
            differing.append(f"{command}\n  ours:  {ours}\n  Kafka: {theirs}")
    assert not differing, "\n".join(differing)
