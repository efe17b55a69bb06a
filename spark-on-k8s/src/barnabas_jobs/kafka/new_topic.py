"""The configs that a new topic would have, from the response to a CreateTopics request that only validates.

The request is sent with kafka-python, because librdkafka drops the configs from the response.
"""

from collections.abc import Mapping
from typing import Any

from kafka.admin import ConfigSourceType

from barnabas_jobs.kafka.admin_client import admin_client
from barnabas_jobs.planning.errors import JobFailed
from barnabas_jobs.planning.topic_setting import Origin, TopicSetting


def settings_of_new_topic(
    bootstrap: str, name: str, partitions: int, config: Mapping[str, str], replicas: int | None = None
) -> dict[str, TopicSetting]:
    """Return the configs that a topic would have, including broker defaults, without creating the topic.

    Raises JobFailed if the brokers would not create the topic, or do not return its configs.
    """
    wanted = {name: {"num_partitions": partitions, "replication_factor": replicas or -1, "configs": dict(config)}}
    with admin_client(bootstrap, f"cannot get the configs of the new topic={name} from the brokers") as admin:
        (answer,) = admin.create_topics(wanted, validate_only=True, raise_errors=False)["topics"]
    return _settings(bootstrap, answer)


def _settings(bootstrap: str, answer: Mapping[str, Any]) -> dict[str, TopicSetting]:
    if answer["error_code"]:
        raise JobFailed(f"topic={answer['name']}: the cluster at {bootstrap} answered: {answer['error_message']}")
    if "configs" not in answer:
        raise JobFailed(
            f"topic={answer['name']}: the cluster at {bootstrap} does not return the configs of a new topic. Grant "
            "the user DescribeConfigs on the topic, or create the topic before you restore"
        )
    return {
        setting: TopicSetting(entry["value"], Origin(ConfigSourceType[entry["config_source"]]))
        for setting, entry in answer["configs"].items()
        if entry["value"] is not None
    }
