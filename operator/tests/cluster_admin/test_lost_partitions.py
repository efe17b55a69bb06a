"""What brokers tell of partitions that lack records."""

from barnabas_operator.kafka.losses import parsed


def test_each_partition_has_its_text() -> None:
    value = "0: last known end 9308, broker 1 ends at 0; 12: last known end unknown, broker 1 has no log; and 3 more"
    assert parsed("orders", value) == {
        ("orders", 0): "last known end 9308, broker 1 ends at 0",
        ("orders", 12): "last known end unknown, broker 1 has no log",
    }
