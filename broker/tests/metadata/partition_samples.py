"""Sample states of partitions, and brokers, for tests of decisions."""

from collections.abc import Sequence
from uuid import UUID

import msgspec

from barnabas_broker.metadata.model import BrokerRegistration, PartitionState
from barnabas_core.topic_partition import TopicPartition

TOPIC_ID = UUID(int=77)
PARTITION = TopicPartition("t", 0)


def brokers(*living: int, fenced: Sequence[int] = (), stopping: Sequence[int] = ()) -> dict[int, BrokerRegistration]:
    """Return registrations; the epoch of each broker is 10 plus its id."""
    return {
        number: BrokerRegistration(
            number,
            UUID(int=number),
            (),
            fenced=number in fenced,
            broker_epoch=10 + number,
            is_shutting_down=number in stopping,
        )
        for number in sorted({*living, *fenced, *stopping})
    }


def state(replicas: Sequence[int], leader: int, isr: Sequence[int], **more: object) -> PartitionState:
    before = PartitionState(tuple(replicas), leader, 4, tuple(isr), partition_epoch=9)
    return msgspec.structs.replace(before, **more)
