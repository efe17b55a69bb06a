"""The metrics of stored settings that have no effect.

Such settings need a newer broker, or contradict the properties file.
"""

from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.server.metrics.exposition import Family, Sample, labels


def config_families(environment: HandlerEnvironment) -> list[Family]:
    """Return a family with one sample for each setting that is ignored, labelled with its resource."""
    return [
        Family(
            "barnabas_ignored_configs",
            "gauge",
            "1 for each stored setting that this broker ignores; the broker's log has the reasons",
            lambda: [
                Sample(labels(resource=each.resource, name=each.name, setting=each.setting), 1)
                for each in environment.ignored_configs()
            ],
        )
    ]
