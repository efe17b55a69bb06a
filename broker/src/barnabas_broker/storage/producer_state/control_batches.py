"""The processing of control batches that are in the log: on a follower, in recovery and after a reload."""

from collections.abc import Iterator, Sequence

from barnabas_broker.storage.producer_state.producers import ProducerStates
from barnabas_broker.storage.segments.segment import Segment
from barnabas_broker.wire.parts import Buffer
from barnabas_broker.wire.record_batch import CONTROL_BIT, BatchHeader
from barnabas_broker.wire.transaction_markers import decode_marker


def control_batches(run: memoryview, headers: Sequence[BatchHeader]) -> Iterator[memoryview]:
    """Yield, for each control batch in `run`, the bytes from the start of the batch to the end of `run`.

    `run` holds consecutive batches, and `headers` are the headers of all these batches.
    """
    position = 0
    for header in headers:
        if header.producer_id >= 0 and header.attributes & CONTROL_BIT:
            yield run[position:]
        position += header.size_bytes


def record_control(states: ProducerStates, segment: Segment, batch: Buffer, header: BatchHeader) -> None:
    """Apply the transaction marker in a control batch; add an aborted transaction to the transaction index."""
    marker = decode_marker(batch, header)
    if marker is not None:
        aborted = states.record_marker(marker, header.base_offset, header.max_timestamp_ms)
        if aborted is not None:
            segment.transactions.add(aborted)
