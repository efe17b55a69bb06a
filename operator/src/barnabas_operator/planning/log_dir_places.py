"""Which log dir of its broker each new replica goes to: the brokers' own rule, over all that is planned together."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from barnabas_core.config.broker_definitions import BROKER_CONFIGS
from barnabas_core.config.definitions import Value, parse_value
from barnabas_core.log_dir_placement import LogDirLoad, choose_log_dir
from barnabas_operator.planning.cluster_state import TopicState
from barnabas_operator.planning.steps import CreateTopic, IncreasePartitions, MoveReplicas, Step
from barnabas_operator.planning.topic_config import declared_texts
from barnabas_operator.resources.cluster import Cluster

RULE: Final = "log.dirs.placement"
HEADROOM: Final = "log.dirs.headroom.bytes"
LogDirs = Mapping[int, Sequence[LogDirLoad]]
"""By broker its log dirs that are online, and how full they are."""


class NewReplica(NamedTuple):
    """One that a broker will get."""

    topic: str
    partition: int
    broker_id: int


def new_replicas(steps: Iterable[Step], topics: Mapping[str, TopicState]) -> Iterator[NewReplica]:
    """All that brokers get by these steps and do not have yet."""
    for step in steps:
        had = topics[step.topic].partitions if step.topic in topics else ()
        for number, row in _rows(step):
            there = had[number] if number < len(had) else ()
            yield from (NewReplica(step.topic, number, broker) for broker in row if broker not in there)


def _rows(step: Step) -> Iterable[tuple[int, Sequence[int]]]:
    match step:
        case CreateTopic(_, assignments, _):
            return enumerate(assignments)
        case IncreasePartitions(_, count, assignments):
            return enumerate(assignments, count - len(assignments))
        case MoveReplicas(_, moved):
            return moved.items()
        case _:
            return ()


def place_in_log_dirs(replicas: Iterable[NewReplica], log_dirs: LogDirs, cluster: Cluster) -> dict[NewReplica, str]:
    """The path for each new replica; none for brokers with one log dir, or of which nothing is known."""
    rule, headroom_bytes = str(_setting(cluster, RULE)), int(str(_setting(cluster, HEADROOM)))
    loads = {broker: {load.path: load for load in found} for broker, found in log_dirs.items() if len(found) > 1}
    placed = {}
    for replica in replicas:
        if replica.broker_id in loads:
            there = loads[replica.broker_id]
            path = placed[replica] = choose_log_dir(rule, list(there.values()), headroom_bytes)
            load = there[path]
            there[path] = load._replace(partitions=load.partitions + 1, empty_partitions=load.empty_partitions + 1)
    return placed


def _setting(cluster: Cluster, name: str) -> Value:
    definition, text = BROKER_CONFIGS[name], declared_texts(cluster.spec.config).get(name)
    return definition.default if text is None else parse_value(definition, text)
