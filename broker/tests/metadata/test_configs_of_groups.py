"""Configs of groups are stored, changed, described and listed, and leave nothing behind when they are removed."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from asked_in_turns import SlowClock, ask
from metadata_cluster import Node, cluster_at

from barnabas_broker.handlers.large_responses import LargeResponses
from barnabas_broker.metadata.controller.decisions.alter_configs import (
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ConfigResourceType,
)
from barnabas_broker.metadata.documents import group_configs_key
from barnabas_broker.wire.messages import DescribeConfigsRequest, ListConfigResourcesRequest
from barnabas_core.config.broker_config import parse_broker_config
from barnabas_core.errors import ErrorCode
from harness.manual_timers import ManualTimers

SESSION = "consumer.session.timeout.ms"
GROUP = ConfigResource(ConfigResourceType.GROUP, "pay: all/of\u00fcs")


async def change(
    node: Node, name: str, value: str | None, operation: ConfigOperation = ConfigOperation.SET
) -> ErrorCode | None:
    """Change one config of the group; return the error."""
    error = (await node.writer.alter_configs({GROUP: [ConfigChange(name, operation, value)]}))[GROUP]
    return None if error is None else error.code


async def test_a_removed_config_leaves_no_document(tmp_path: Path) -> None:
    async with cluster_at(tmp_path / "metadata.db") as cluster:
        (node,) = await cluster.start(0)
        assert await change(node, SESSION, "50000") is None
        assert node.image.group_configs == {GROUP.name: {SESSION: "50000"}}
        assert await change(node, SESSION, None, ConfigOperation.DELETE) is None
        assert node.image.group_configs == {}
        assert await node.store.get(group_configs_key(GROUP.name)) is None
        assert not node.image.lost


async def test_alter_configs_replaces_all_configs_of_a_group(tmp_path: Path) -> None:
    async with cluster_at(tmp_path / "metadata.db") as cluster:
        (node,) = await cluster.start(0)
        await change(node, SESSION, "50000")
        assert await node.writer.replace_configs({GROUP: {"consumer.heartbeat.interval.ms": "6000"}}) == {GROUP: None}
        assert node.image.group_configs == {GROUP.name: {"consumer.heartbeat.interval.ms": "6000"}}
        assert await node.writer.replace_configs({GROUP: {}}, validate_only=True) == {GROUP: None}
        assert node.image.group_configs != {}
        assert await node.writer.replace_configs({GROUP: {}}) == {GROUP: None}
        assert node.image.group_configs == {}


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        (SESSION, "1", ErrorCode.INVALID_CONFIG),
        (SESSION, "many", ErrorCode.INVALID_CONFIG),
        (SESSION, None, ErrorCode.INVALID_REQUEST),
        ("share.isolation.level", "serializable", ErrorCode.INVALID_CONFIG),
        ("retention.ms", "1", ErrorCode.INVALID_CONFIG),
    ],
)
async def test_a_wrong_config_is_refused(tmp_path: Path, name: str, value: str | None, error: ErrorCode) -> None:
    async with cluster_at(tmp_path / "metadata.db") as cluster:
        (node,) = await cluster.start(0)
        assert await change(node, name, value) is error
        assert node.image.group_configs == {}


async def test_a_group_without_a_name_has_no_configs(tmp_path: Path) -> None:
    async with cluster_at(tmp_path / "metadata.db") as cluster:
        (node,) = await cluster.start(0)
        nameless = ConfigResource(ConfigResourceType.GROUP, "")
        error = (await node.writer.replace_configs({nameless: {SESSION: "50000"}}))[nameless]
        assert error is not None
        assert error.code is ErrorCode.INVALID_REQUEST


def environment(group_configs: dict[str, dict[str, str]]) -> Any:
    return SimpleNamespace(
        authorizer=None,
        quotas=SimpleNamespace(are_set=False),
        image=SimpleNamespace(group_configs=group_configs, topics={}, brokers={}),
        config=parse_broker_config({}),
        answers=LargeResponses(SlowClock(), ManualTimers()),
    )


def test_a_group_is_described_whether_it_exists_or_not() -> None:
    resources = [
        DescribeConfigsRequest.DescribeConfigsResource(resource_type=32, resource_name=name, configuration_keys=None)
        for name in ("pay", "none", "")
    ]
    request = DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=False)
    pay, none, nameless = ask(environment({"pay": {SESSION: "50000"}}), request, 4).answer.results
    values = {entry.name: entry.value for entry in pay.configs}
    assert (values[SESSION], {entry.name: entry.value for entry in none.configs}[SESSION]) == ("50000", "45000")
    assert (nameless.error_code, nameless.configs) == (ErrorCode.INVALID_REQUEST, [])


def test_groups_with_configs_are_listed() -> None:
    request = ListConfigResourcesRequest(resource_types=[32])
    listed = ask(environment({"pay": {SESSION: "50000"}}), request, 1).answer.config_resources
    assert [(each.resource_name, each.resource_type) for each in listed] == [("pay", 32)]
