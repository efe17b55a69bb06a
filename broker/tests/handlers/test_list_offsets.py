"""ListOffsets tells nothing of records that are not committed."""

import asyncio
from pathlib import Path

from one_replica import HERE, OTHER, Broker, led

from barnabas_broker.handlers.list_offsets import LARGEST_TIMESTAMP, NOTHING, Found, find_offset
from barnabas_core.fair_turns import FairTurn


def found(broker: Broker) -> Found:
    partition, turn = broker.partition, FairTurn(broker.clock)
    return asyncio.run(find_offset(partition, LARGEST_TIMESTAMP, partition.high_watermark, turn))


def test_the_record_with_the_largest_time_is_none_that_is_not_committed(tmp_path: Path) -> None:
    broker = Broker(tmp_path, led(HERE, 1, HERE, OTHER, replicas=2))
    broker.append(1)
    partition = broker.partition
    assert partition.high_watermark == 0
    assert found(broker) == NOTHING
    partition.fetched_by(OTHER, 0, 1, 0, 0)
    assert found(broker).offset == 0
