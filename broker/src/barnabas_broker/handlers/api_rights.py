"""The table of the rights that each API needs.

`guard` checks the rights in `ApiRights.needs` before a handler runs. The handler itself checks the rights that
`ApiRights.in_handler` describes, because it lists resources, or because the rights depend on more than the request.
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
    """A right that a request needs."""

    operation: AclOperation
    resource_type: ResourceType
    field: str = ""
    """The path to the resource names in the request; empty for the cluster, which has no name.

    `topics.name` means the field `name` of each element of `topics`. `groups[]` means that the elements of `groups` are
    the names. `resources.` means that the right on the cluster is checked for each element of `resources`.
    """
    first_version: int = 0
    last_version: int = LATEST
    when: tuple[str, tuple[int, ...]] | None = None
    """The name of a field, and the values of the field for which the right is needed; None if it is always needed.

    The field belongs to the request, or to the elements of the request's array `array`.
    """
    or_on_cluster: AclOperation | None = None
    """The operation on the cluster that suffices instead of `operation` on the resource; None if no operation does."""

    @property
    def code(self) -> ErrorCode:
        """The error code for a client without the right."""
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
    """The name of a response array, mapped to the name of the request array that it answers; equal names are left out.

    `outer.inner` is the array `inner` in each element of `outer`. `a+b` is all elements of `a`, then all elements of
    `b`.
    """
    names_each: bool = False
    """True if an error response has the error code at the top level and in each element of its arrays, as in Kafka."""
    refused: Mapping[str, object] = {}
    """The values, by field name, that an error response must have instead of the protocol's defaults."""
    in_handler: str = ""
    """A description of the rights that the handler itself checks."""


def _cluster(operation: AclOperation, or_on_cluster: AclOperation | None = None) -> Need:
    return Need(operation, _CLUSTER, or_on_cluster=or_on_cluster)


_CONFIG_KINDS: Final = ((_TOPIC, (2,)), (_GROUP, (32,)), (_CLUSTER, (4, 8, 16)))
"""The ACL resource types, each with the codes of the config resource types that its ACLs protect.

The codes are those of DescribeConfigs: 2 is TOPIC, 4 BROKER, 8 BROKER_LOGGER, 16 CLIENT_METRICS, and 32 GROUP.
"""


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
    0: ApiRights(
        in_handler="The client needs Write on each topic (otherwise error code 29), and Write on the transactional id "
        "of transactional batches (otherwise error code 53). The batches that the client may write are appended."
    ),
    1: ApiRights(
        in_handler="A consumer needs Read on each topic (otherwise error code 29). A follower needs ClusterAction on "
        "the cluster (otherwise error code 31)."
    ),
    2: ApiRights((Need(_O.DESCRIBE, _TOPIC, "topics.name"),)),
    3: ApiRights(
        in_handler="The client needs Describe on each topic that it names (otherwise error code 29). A request for all "
        "topics returns the topics that the client may describe. To create a topic, the client needs Create on the "
        "cluster or on the topic (otherwise error code 29). The client needs no right to get the list of brokers."
    ),
    8: ApiRights((Need(_O.READ, _GROUP, "group_id"), Need(_O.READ, _TOPIC, "topics.name"))),
    9: ApiRights(
        (
            Need(_O.DESCRIBE, _GROUP, "group_id", last_version=7),
            Need(_O.DESCRIBE, _GROUP, "groups.group_id", first_version=8),
        ),
        refused={"committed_offset": -1},
        in_handler="The client needs Describe on each topic that it names (otherwise error code 29 and offset -1). A "
        "request for all topics returns the topics that the client may describe.",
    ),
    10: ApiRights(
        (
            Need(_O.DESCRIBE, _GROUP, "key", last_version=3, when=("key_type", (0,))),
            Need(_O.DESCRIBE, _ID, "key", last_version=3, when=("key_type", (1,))),
            Need(_O.CLUSTER_ACTION, _CLUSTER, first_version=6, when=("key_type", (2,))),
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
    16: ApiRights(
        in_handler="The response lists the groups that the client may describe, and all groups if the "
        "client may describe the cluster."
    ),
    17: ApiRights(),
    18: ApiRights(),
    19: ApiRights(
        (Need(_O.CREATE, _TOPIC, "topics.name", or_on_cluster=_O.CREATE),),
        refused={"num_partitions": -1, "replication_factor": -1},
        in_handler="A client without DescribeConfigs on a topic can create the topic, but the response has error code "
        "29 in topic_config_error_code, no configs, and -1 for num_partitions and replication_factor.",
    ),
    20: ApiRights(
        in_handler="The client needs Delete on each topic or on the cluster (otherwise error code 29). If the "
        "client deletes by topic id and is refused, the response names the topic only if the client may describe it."
    ),
    21: ApiRights((Need(_O.DELETE, _TOPIC, "topics.name"),), refused={"low_watermark": -1}),
    22: ApiRights(
        in_handler="A client with a transactional id needs Write on the id (otherwise error code 53). Any other client "
        "needs IdempotentWrite on the cluster, or Write on any topic (otherwise error code 31)."
    ),
    23: ApiRights(
        (Need(_O.DESCRIBE, _TOPIC, "topics.topic", or_on_cluster=_O.CLUSTER_ACTION),), refused={"leader_epoch": -1}
    ),
    24: ApiRights(
        (
            Need(_O.WRITE, _ID, "v3_and_below_transactional_id", last_version=3),
            Need(_O.CLUSTER_ACTION, _CLUSTER, first_version=4),
        ),
        {"results_by_topic_v3_and_below": "v3_and_below_topics", "results_by_partition": "partitions"},
        in_handler="Up to v3 the client needs Write on each topic (otherwise error code 29). If one topic is refused, "
        "no partition is added, and the other partitions have error code 55.",
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
    38: ApiRights(),
    39: ApiRights(),
    40: ApiRights(),
    41: ApiRights(),
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
    49: ApiRights(
        in_handler="The client needs AlterConfigs on the cluster (otherwise each entry of the response has error "
        "code 31)."
    ),
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
        in_handler="The response lists only the topics that the client may describe.",
    ),
    66: ApiRights(in_handler="The response lists only the transactional ids that the client may describe."),
    68: ApiRights(
        in_handler="The client needs Read on the group (otherwise error code 30), and Describe on each topic that it "
        "names (otherwise error code 29). A regular expression matches only topics that the client may describe."
    ),
    69: ApiRights(
        in_handler="The client needs Describe on each group (otherwise error code 30), and on each topic to which a "
        "member of the group subscribes (otherwise the group has error code 29)."
    ),
    74: ApiRights((_cluster(_O.DESCRIBE_CONFIGS),)),
    75: ApiRights(
        in_handler="The client needs Describe on each topic that it names (otherwise error code 29 and a zero topic "
        "id). A request for all topics returns the topics that the client may describe."
    ),
    76: ApiRights(
        in_handler="The client needs Read on the group (otherwise error code 30), and Describe on each topic that it "
        "names (otherwise error code 29)."
    ),
    77: ApiRights(
        in_handler="The client needs Describe on each group (otherwise error code 30), and on each topic to which a "
        "member of the group subscribes (otherwise the group has error code 29)."
    ),
    78: ApiRights(
        in_handler="The client needs Read on the group (otherwise error code 30), and on each topic (otherwise its "
        "partitions have error code 29)."
    ),
    79: ApiRights(
        in_handler="The client needs Read on the group (otherwise error code 30), and on each topic (otherwise its "
        "partitions have error code 29)."
    ),
    **dict.fromkeys(
        (83, 84, 85, 86, 87),
        ApiRights((_cluster(_O.CLUSTER_ACTION),), {"results": "topics", "partitions": "partitions"}),
    ),
    90: ApiRights(
        in_handler="The client needs Describe on each group (otherwise error code 30), and on each topic that it names "
        "(otherwise its partitions have error code 29). A request for all topics returns those that it may describe."
    ),
    91: ApiRights(
        in_handler="The client needs Read on the group (otherwise error code 30), and on each topic (otherwise its "
        "partitions have error code 29)."
    ),
    92: ApiRights(
        in_handler="The client needs Delete on the group (otherwise error code 30), and Read on each topic (otherwise "
        "error code 29)."
    ),
}
"""The rights that a client needs for each API, by API key."""

CLUSTER_ACTIONS_SINCE: Final[Mapping[int, int]] = {
    key: need.first_version
    for key, row in API_RIGHTS.items()
    for need in row.needs
    if need.operation is _O.CLUSTER_ACTION and need.when is None
}
"""The versions, by API key, from which on brokers send a request to each other; clients have no right to it."""
