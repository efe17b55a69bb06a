"""The stray logs that brokers report in their configs."""

from collections.abc import Mapping, Sequence

from kafka.admin import ConfigResource

from barnabas_operator.kafka.step_requests import stray_logs
from barnabas_operator.planning.cluster_state import StrayLog

Configs = Mapping[str, Mapping[str, str]]


class Client:
    """Brokers that answer with these configs."""

    def __init__(self, brokers: Mapping[str, Configs]) -> None:
        self.brokers = brokers

    def describe_configs(self, asked: Sequence[ConfigResource], config_filter: str) -> Mapping[str, object]:
        assert config_filter == "all"
        return {
            "broker": {
                each.name: {name: entry for name, entry in self.brokers[each.name].items() if name in each.configs}
                for each in asked
            }
        }


def test_stray_logs_in_offline_log_dirs_are_marked_as_offline() -> None:
    told: Configs = {
        "barnabas.stray.logs": {"value": "/data/1/flights-0.a-stray:5,/data/10/flights-1.b-stray:7"},
        "barnabas.stray.logs.offline": {"value": "/data/1"},
    }
    found = stray_logs(Client({"0": {}, "1": told}), [0, 1])
    assert found == (
        StrayLog(broker_id=1, directory="/data/1/flights-0.a-stray", size_bytes=5, offline=True),
        StrayLog(broker_id=1, directory="/data/10/flights-1.b-stray", size_bytes=7),
    )


def test_stray_logs_of_a_broker_that_reports_no_offline_log_dirs_are_online() -> None:
    told: Configs = {"barnabas.stray.logs": {"value": "/data/1/flights-0.a-stray:5"}}
    found = stray_logs(Client({"0": told}), [0])
    assert found == (StrayLog(broker_id=0, directory="/data/1/flights-0.a-stray", size_bytes=5),)
