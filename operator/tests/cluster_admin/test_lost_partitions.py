"""The broker config that reports partitions which lack records."""

from barnabas_operator.kafka.step_requests import parsed


def test_the_report_of_lost_records_is_split_by_partition() -> None:
    value = (
        "0: the last known log end is 9308, the log of broker 1 ends at 0; 12: the log end before the loss is unknown, "
        "broker 1 has no log; and 3 more partitions"
    )
    assert parsed("orders", value) == {
        ("orders", 0): "the last known log end is 9308, the log of broker 1 ends at 0",
        ("orders", 12): "the log end before the loss is unknown, broker 1 has no log",
    }
