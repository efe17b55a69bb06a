"""The choice of a log dir for each new replica by the brokers' `log.dirs.placement`, counting all planned replicas."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from barnabas_core.config.broker_definitions import BROKER_CONFIGS
from barnabas_core.config.definitions import Value, parse_value
from barnabas_core.log_dir_placement import LogDirLoad, choose_log_dir
from barnabas_operator.planning.cluster_state import TopicState
from barnabas_operator.planning.configs import declared_texts
from barnabas_operator.planning.topics.topic_steps import CreateTopic, IncreasePartitions, MoveReplicas, TopicStep
from barnabas_operator.resources.cluster import Cluster

RULE: Final = "log.dirs.placement"
HEADROOM: Final = "log.dirs.headroom.bytes"


class NewReplica(NamedTuple):
    """A replica that a broker will get."""

    topic: str
    partition: int
    broker_id: int


def new_replicas(steps: Iterable[TopicStep], topics: Mapping[str, TopicState]) -> dict[int, list[NewReplica]]:
    """Return, by broker, the replicas that the planned steps add to the broker."""
    found: dict[int, list[NewReplica]] = {}
    for step in steps:
        had = topics[step.topic].partitions if step.topic in topics else ()
        for number, row in _rows(step):
            there = had[number] if number < len(had) else ()
            for broker_id in row:
                if broker_id not in there:
                    found.setdefault(broker_id, []).append(NewReplica(step.topic, number, broker_id))
    return found


def _rows(step: TopicStep) -> Iterable[tuple[int, Sequence[int]]]:
    match step:
        case CreateTopic(_, assignments, _):
            return enumerate(assignments)
        case IncreasePartitions(_, count, assignments):
            return enumerate(assignments, count - len(assignments))
        case MoveReplicas(_, moved):
            return moved.items()
        case _:
            return ()


def place_in_log_dirs(
    replicas: Iterable[NewReplica], log_dirs: Sequence[LogDirLoad], cluster: Cluster
) -> dict[NewReplica, str]:
    """Return the log dir for each new replica of one broker, or nothing if the broker has only one log dir."""
    if len(log_dirs) < 2:
        return {}
    rule, headroom_bytes = str(_setting(cluster, RULE)), int(str(_setting(cluster, HEADROOM)))
    loads = {load.path: load for load in log_dirs}
    placed = {}
    for replica in replicas:
        path = placed[replica] = choose_log_dir(rule, list(loads.values()), headroom_bytes)
        load = loads[path]
        loads[path] = load._replace(partitions=load.partitions + 1, empty_partitions=load.empty_partitions + 1)
    return placed


def _setting(cluster: Cluster, name: str) -> Value:
    definition, text = BROKER_CONFIGS[name], declared_texts(cluster.spec.config).get(name)
    return definition.default if text is None else parse_value(definition, text)
