"""Settings that are stored and have no effect: of a newer version, or in contradiction with a broker's file."""

from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.server.metrics.exposition import Family, Sample, labels


def config_families(environment: HandlerEnvironment) -> list[Family]:
    """One sample a setting, with what it belongs to."""
    return [
        Family(
            "barnabas_ignored_configs",
            "gauge",
            "Stored settings that this broker cannot use; its log says why",
            lambda: [
                Sample(labels(resource=each.resource, name=each.name, setting=each.setting), 1)
                for each in environment.ignored_configs()
            ],
        )
    ]
