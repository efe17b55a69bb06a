"""The options of a lag exporter for the names that its Cluster wants. Pure."""

from barnabas_operator.resources.lag_exporter import LagExporter


def name_options(declared: LagExporter) -> list[str]:
    """The options of `barnabas lag-exporter` that name groups and topics."""
    return [
        f"--topic.filter={declared.topic_regex}",
        f"--topic.exclude={declared.topic_exclude_regex}",
        f"--group.filter={declared.group_regex}",
        f"--group.exclude={declared.group_exclude_regex}",
    ]
