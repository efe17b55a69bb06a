"""The table of the rights that each API needs on which resource, and of the answers without them.

`guard` enforces the needs of this table before a handler runs. Where `in_handler` says something, the handler looks at
the rights itself, since it lists resources, or since what it needs depends on more than the request.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from barnabas_core.acls import AclOperation, ResourceType
from barnabas_core.errors import ErrorCode

_O = AclOperation
_TOPIC, _GROUP, _CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
_ID: Final = ResourceType.TRANSACTIONAL_ID
LATEST: Final = 1 << 15


class Need(NamedTuple):
    """A right that a request needs, and the error without it."""

    operation: AclOperation
    resource_type: ResourceType
    field: str = ""
    """The field with the resource's name. `topics.name` is one of each element of an array, `groups[]` is an array of
    names, `creations.` stands for the cluster, for each element. Where it is empty the resource is the cluster."""
    first_version: int = 0
    last_version: int = LATEST
    when: tuple[str, tuple[int, ...]] | None = None
    """A field of the element or the request, and its values with which this is needed."""
    or_on_cluster: AclOperation | None = None
    """The right on the cluster that is enough instead."""

    @property
    def code(self) -> ErrorCode:
        """The error that a refusal has."""
        return CODES[self.resource_type]

    @property
    def array(self) -> str:
        """The array of the request whose elements are checked one by one; "" if the request is checked as a whole."""
        return self.field.removesuffix("[]").partition(".")[0] if self.field.endswith("[]") or "." in self.field else ""


CODES: Final[Mapping[ResourceType, ErrorCode]] = {
    _TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    _GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    _CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    _ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


class ApiRights(NamedTuple):
    """The rights that one API needs."""

    needs: tuple[Need, ...] = ()
    answers: Mapping[str, str] = {}
    """The array of the request that an array of the answer repeats, where their names differ: `outer.inner`, `a+b`."""
    names_each: bool = False
    """True if an answer that refuses all names each element, too."""
    refused: Mapping[str, object] = {}
    """Fields of a refused element that differ from their defaults."""
    in_handler: str = ""
    """A sentence about the rights that the handler itself checks."""


def _cluster(operation: AclOperation, or_on_cluster: AclOperation | None = None) -> Need:
    return Need(operation, _CLUSTER, or_on_cluster=or_on_cluster)


_CONFIG_KINDS: Final = ((_TOPIC, (2,)), (_GROUP, (32,)), (_CLUSTER, (4, 8, 16)))
"""The resource types of configs, by the ACL resource type whose right is needed."""


def _configs(operation: AclOperation) -> tuple[Need, ...]:
    return tuple(
        Need(
            operation,
            kind,
            "resources." if kind is _CLUSTER else "resources.resource_name",
            when=("resource_type", values),
        )
        for kind, values in _CONFIG_KINDS
    )


API_RIGHTS: Final[Mapping[int, ApiRights]] = {
    0: ApiRights(in_handler="Write T: 29 for each partition; transactional batches Write X: 53; all else is written"),
    1: ApiRights(in_handler="Read T: 29 for each partition; a replica ClusterAction C: 31"),
    2: ApiRights((Need(_O.DESCRIBE, _TOPIC, "topics.name"),)),
    3: ApiRights(in_handler="Describe T: all: out, named: 29; to create Create C or T: 29; brokers are for everybody"),
    8: ApiRights((Need(_O.READ, _GROUP, "group_id"), Need(_O.READ, _TOPIC, "topics.name"))),
    9: ApiRights(
        (
            Need(_O.DESCRIBE, _GROUP, "group_id", last_version=7),
            Need(_O.DESCRIBE, _GROUP, "groups.group_id", first_version=8),
        ),
        refused={"committed_offset": -1},
        in_handler="Describe T: all topics: out, named: 29 with offset -1",
    ),
    10: ApiRights(
        (
            Need(_O.DESCRIBE, _GROUP, "key", last_version=3, when=("key_type", (0,))),
            Need(_O.DESCRIBE, _ID, "key", last_version=3, when=("key_type", (1,))),
            Need(_O.DESCRIBE, _GROUP, "coordinator_keys[]", first_version=4, when=("key_type", (0,))),
            Need(_O.DESCRIBE, _ID, "coordinator_keys[]", first_version=4, when=("key_type", (1,))),
        ),
        {"coordinators": "coordinator_keys"},
        refused={"node_id": -1, "port": -1},
    ),
    11: ApiRights((Need(_O.READ, _GROUP, "group_id"),)),
    12: ApiRights((Need(_O.READ, _GROUP, "group_id"),)),
    13: ApiRights((Need(_O.READ, _GROUP, "group_id"),)),
    14: ApiRights((Need(_O.READ, _GROUP, "group_id"),)),
    15: ApiRights((Need(_O.DESCRIBE, _GROUP, "groups[]"),)),
    16: ApiRights(in_handler="Describe C, else Describe G: out"),
    17: ApiRights(),
    18: ApiRights(),
    19: ApiRights(
        (Need(_O.CREATE, _TOPIC, "topics.name", or_on_cluster=_O.CREATE),),
        refused={"num_partitions": -1, "replication_factor": -1},
        in_handler="DescribeConfigs T: it is created, configs are empty with error 29, counts -1",
    ),
    20: ApiRights(in_handler="Delete T: 29; by id the name only with Describe T"),
    21: ApiRights((Need(_O.DELETE, _TOPIC, "topics.name"),), refused={"low_watermark": -1}),
    22: ApiRights(in_handler="Write X: 53; without an id IdempotentWrite C, or Write on any T: 31"),
    23: ApiRights(
        (Need(_O.DESCRIBE, _TOPIC, "topics.topic", or_on_cluster=_O.CLUSTER_ACTION),), refused={"leader_epoch": -1}
    ),
    24: ApiRights(
        (
            Need(_O.WRITE, _ID, "v3_and_below_transactional_id", last_version=3),
            Need(_O.CLUSTER_ACTION, _CLUSTER, first_version=4),
        ),
        {"results_by_topic_v3_and_below": "v3_and_below_topics", "results_by_partition": "partitions"},
        in_handler="up to v3 Write T: 29, the others 55, and nothing is added",
    ),
    25: ApiRights((Need(_O.WRITE, _ID, "transactional_id"), Need(_O.READ, _GROUP, "group_id"))),
    26: ApiRights((Need(_O.WRITE, _ID, "transactional_id"),)),
    27: ApiRights((_cluster(_O.CLUSTER_ACTION, or_on_cluster=_O.ALTER),)),
    28: ApiRights(
        (
            Need(_O.WRITE, _ID, "transactional_id"),
            Need(_O.READ, _GROUP, "group_id"),
            Need(_O.READ, _TOPIC, "topics.name"),
        )
    ),
    29: ApiRights((_cluster(_O.DESCRIBE),)),
    30: ApiRights((_cluster(_O.ALTER),), {"results": "creations"}),
    31: ApiRights((_cluster(_O.ALTER),), {"filter_results": "filters"}),
    32: ApiRights(_configs(_O.DESCRIBE_CONFIGS), {"results": "resources"}),
    33: ApiRights(_configs(_O.ALTER_CONFIGS), {"responses": "resources"}),
    34: ApiRights((_cluster(_O.ALTER),), {"results": "dirs.topics"}),
    35: ApiRights((_cluster(_O.DESCRIBE),)),
    36: ApiRights(),
    37: ApiRights((Need(_O.ALTER, _TOPIC, "topics.name"),), {"results": "topics"}),
    42: ApiRights((Need(_O.DELETE, _GROUP, "groups_names[]"),), {"results": "groups_names"}),
    43: ApiRights(
        (_cluster(_O.ALTER),),
        {"replica_election_results": "topic_partitions", "partition_result": "partitions"},
        names_each=True,
    ),
    44: ApiRights(_configs(_O.ALTER_CONFIGS), {"responses": "resources"}),
    45: ApiRights((_cluster(_O.ALTER),), {"responses": "topics"}, names_each=True),
    46: ApiRights((_cluster(_O.DESCRIBE),)),
    47: ApiRights((Need(_O.DELETE, _GROUP, "group_id"), Need(_O.READ, _TOPIC, "topics.name"))),
    48: ApiRights((_cluster(_O.DESCRIBE_CONFIGS),)),
    49: ApiRights(in_handler="AlterConfigs C: 31 for each entry"),
    50: ApiRights((_cluster(_O.DESCRIBE),)),
    51: ApiRights((_cluster(_O.ALTER),), {"results": "deletions+upsertions"}),
    55: ApiRights((_cluster(_O.DESCRIBE),)),
    57: ApiRights((_cluster(_O.ALTER),)),
    60: ApiRights(),
    61: ApiRights((Need(_O.READ, _TOPIC, "topics.name"),)),
    64: ApiRights((_cluster(_O.ALTER),)),
    65: ApiRights(
        (Need(_O.DESCRIBE, _ID, "transactional_ids[]"),),
        {"transaction_states": "transactional_ids"},
        in_handler="Describe T: topics are out",
    ),
    66: ApiRights(in_handler="Describe X: out"),
    74: ApiRights((_cluster(_O.DESCRIBE_CONFIGS),)),
    75: ApiRights(in_handler="Describe T: all: out, named: 29 with a zero id"),
}
"""The rights by API key. C is the cluster, T a topic, G a group, X a transactional id; "out" means left out."""
