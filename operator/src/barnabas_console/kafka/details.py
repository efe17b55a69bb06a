"""The requests of single pages: the configs of a topic or a group, rights, users with their ACLs."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kafka.errors import for_code
from kafka.protocol.admin import DescribeConfigsRequest
from kafka.protocol.metadata import MetadataRequest

from barnabas_console.model.details import Config, Detail, UserRow
from barnabas_console.model.rights import Rule, word
from barnabas_core.acls import AclOperation
from barnabas_core.errors import ErrorCode
from barnabas_operator.kafka.step_requests import cluster_users

TOPIC_RESOURCE: Final = 2
GROUP_RESOURCE: Final = 32
OWN_SOURCES: Final = ("topic", "group")
SOURCES: Final = {
    1: "topic",
    2: "broker, dynamic",
    3: "all brokers, dynamic",
    4: "broker, static",
    5: "default",
    6: "broker logger",
    7: "client metrics",
    8: "group",
}
"""The sources of a config by their numbers in DescribeConfigs."""
RIGHTS_VERSION: Final = 8
RIGHTS_VERSION_MAX: Final = 12


def topic_detail(client: Any, topic: str) -> Detail:
    """Return the configs of a topic with their sources, and the rights of the client's user. Raises KafkaError."""
    return _configs(client, TOPIC_RESOURCE, topic)._replace(rights=_rights(client, topic))


def group_detail(client: Any, group_id: str) -> Detail:
    """Return the configs of a group of the protocols of Kafka 4 with their sources. Raises KafkaError."""
    return _configs(client, GROUP_RESOURCE, group_id)


def _configs(client: Any, resource_type: int, name: str) -> Detail:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=resource_type, resource_name=name, configuration_keys=None
    )
    (found,) = client.ask(DescribeConfigsRequest(resources=[resource])).results
    if found.error_code != ErrorCode.NONE:
        why = for_code(found.error_code).__name__
        return Detail(failure=f"configs: {why}: {found.error_message or 'no reason given'}")
    configs = [
        Config(
            each.name,
            None if each.is_sensitive else each.value,
            SOURCES.get(each.config_source, "unknown"),
            each.read_only,
        )
        for each in found.configs
    ]
    return Detail(sorted(configs, key=lambda each: (each.source not in OWN_SOURCES, each.name)))


def _rights(client: Any, topic: str) -> Sequence[str] | None:
    """Return the operations that the user may do with a topic; None if the brokers do not say."""
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=topic)],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
        min_version=RIGHTS_VERSION,
        max_version=RIGHTS_VERSION_MAX,
    )
    (found,) = client.ask(request).topics
    numbers = found.authorized_operations
    return None if numbers is None else [word(each) for each in AclOperation if each in numbers]


class Users(NamedTuple):
    """The users with a SCRAM password, an ACL or a quota, and all ACLs, or None if the brokers have no authorizer."""

    rows: Sequence[UserRow]
    acls: Sequence[Rule] | None


def users_of(client: Any) -> Users:
    """Return all users. Raises ClusterUnreachable if the client's user may not describe them."""
    found = cluster_users(client)
    rows = [
        UserRow(
            name=name,
            mechanisms=tuple(sorted(user.mechanisms)),
            rules=len(user.acls),
            quotas=", ".join(f"{key}={value:g}" for key, value in sorted((user.quotas or {}).items())),
        )
        for name, user in sorted(found.users.items())
    ]
    acls = sorted(acl for user in found.users.values() for acl in user.acls)
    return Users(rows, acls if found.has_authorizer else None)
