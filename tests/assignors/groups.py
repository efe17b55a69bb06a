"""Random groups, and their assignments by Apache Kafka's own assignors and by ours.

Members are called m00, m01 and so on. Topics have the ids 1 to 15, so both visit members and topics in the same order
and must agree on every partition.
"""

import json
import random
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from barnabas_broker.coordinators.modern.assignors import ASSIGNORS, Subscriber
from barnabas_broker.coordinators.share.share_heartbeat import simple
from barnabas_core.loop_turns import at_once
from harness.kafka_jars import jars_folder, java_command
from harness.kept_builds import kept

HERE: Final = Path(__file__).parent
SOURCE: Final = HERE / "Assignors.java"
ANSWERS: Final = HERE / "answers.json"
TOPICS_MAX: Final = 15
MEMBERS_MAX: Final = 12
PARTITIONS_MAX: Final = 24
SIMPLE_PARTITIONS_MAX: Final = 15
"""The partitions of a topic up to which Java's sets of partitions are in ascending order."""
SIMPLE: Final = "simple"

Group = dict[str, Any]
Answer = dict[str, dict[str, list[int]]]


def random_group(chance: random.Random) -> Group:
    """Return a group: its subscriptions are equal or mixed, and its targets those of any earlier time."""
    numbers = chance.sample(range(1, TOPICS_MAX + 1), chance.choice((1, 2, 3, 6, TOPICS_MAX)))
    topics = [str(number) for number in sorted(numbers)]
    assignor = chance.choice((*sorted(ASSIGNORS), SIMPLE))
    most = SIMPLE_PARTITIONS_MAX if assignor == SIMPLE else PARTITIONS_MAX
    partitions = {topic: chance.randrange(1, chance.choice((3, most))) for topic in topics}
    names = [f"m{number:02}" for number in range(chance.randrange(1, MEMBERS_MAX))]
    targets = _random_targets(partitions, names, chance, owners=3 if assignor == SIMPLE else 1)
    everywhere = chance.sample(topics, chance.randrange(1, len(topics) + 1))
    is_mixed = chance.random() < 0.6
    members = {}
    for name in names:
        own = chance.sample(topics, chance.randrange(0, len(topics) + 1)) if is_mixed else everywhere
        instance = f"i{chance.randrange(10**6)}" if chance.random() < 0.3 else None
        members[name] = {"instance": instance, "topics": sorted(own, key=int), "target": targets[name]}
    return {"assignor": assignor, "partitions": partitions, "members": members}


def _random_targets(
    partitions: Mapping[str, int], names: list[str], chance: random.Random, owners: int
) -> dict[str, Any]:
    favourites = names[: chance.randrange(1, len(names) + 1)]
    share = chance.choice((0.0, 0.5, 0.9, 1.0))
    targets: dict[str, Any] = {name: {} for name in names}
    for topic, count in partitions.items():
        for partition in range(count):
            if chance.random() < share:
                for name in chance.sample(favourites, min(len(favourites), chance.randrange(1, owners + 1))):
                    targets[name].setdefault(topic, []).append(partition)
    return targets


def by_apache_kafka(groups: Iterable[Group]) -> Iterator[Answer]:
    """Yield what the assignors of Apache Kafka's group coordinator answer."""

    def build(target: Path) -> None:
        subprocess.run(["javac", "-d", str(target), "-cp", f"{jars_folder()}/*", str(SOURCE)], check=True)

    command = java_command("Assignors", before=[kept("assignors", [SOURCE], build)])
    lines = "".join(json.dumps(group) + "\n" for group in groups)
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True, timeout=600)
    yield from map(json.loads, done.stdout.splitlines())


def by_us(group: Group) -> Answer:
    """Return what our assignor of that name answers."""
    subscribers = {
        name: Subscriber(
            member["instance"],
            frozenset(_id(topic) for topic in member["topics"]),
            {_id(topic): frozenset(partitions) for topic, partitions in member["target"].items()},
        )
        for name, member in group["members"].items()
    }
    counts = {_id(topic): count for topic, count in group["partitions"].items()}
    if group["assignor"] == SIMPLE:
        steps = simple(subscribers, {topic: range(count) for topic, count in counts.items()})
    else:
        steps = ASSIGNORS[group["assignor"]](subscribers, counts)
    return {
        name: {str(topic.int): sorted(partitions) for topic, partitions in assignment.items()}
        for name, assignment in at_once(steps).items()
    }


def without_idle(answer: Answer, group: Group) -> Answer:
    """Return the answer without members and topics that have no partitions, which Kafka names only now and then.

    Topics to which a member does not subscribe are left out, too: Kafka keeps them in some targets, and then ignores
    them.
    """
    subscribed = {name: set(member["topics"]) for name, member in group["members"].items()}
    owning = {
        name: {topic: own for topic, own in topics.items() if own and topic in subscribed[name]}
        for name, topics in answer.items()
    }
    return {name: topics for name, topics in owning.items() if topics}


def _id(topic: str) -> UUID:
    return UUID(int=int(topic))
