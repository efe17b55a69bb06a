"""The kinds of problems that an audit can find, and the class of a problem in the files of a segment."""

from typing import Final, NamedTuple

BAD_CRC: Final = "bad-crc"
BAD_HEADER: Final = "bad-header"
TORN_BATCH: Final = "torn-batch"
BAD_RECORDS: Final = "bad-records"
OFFSETS_GO_BACK: Final = "offsets-go-back"
OFFSET_GAP: Final = "offset-gap"
EPOCH_GOES_BACK: Final = "epoch-goes-back"
INDEX_DAMAGED: Final = "index-damaged"
TIME_INDEX_DAMAGED: Final = "time-index-damaged"
TRANSACTION_INDEX_DAMAGED: Final = "transaction-index-damaged"
BAD_MARKER: Final = "bad-marker"
CHECKPOINT_CONTRADICTS: Final = "checkpoint-contradicts"
ENDS_EARLY: Final = "ends-early"
REPLICAS_DIFFER: Final = "replicas-differ"
NO_PARTITION: Final = "no-partition"
UNREADABLE: Final = "unreadable"

KINDS: Final = {
    BAD_CRC: "the CRC-32C of a batch does not match its bytes",
    BAD_HEADER: "a batch has no valid header of message format 2",
    TORN_BATCH: "a batch is incomplete in a closed segment, or is incomplete below the recovery point",
    BAD_RECORDS: "the records of a batch contradict the batch's header (checked only with deep=true)",
    OFFSETS_GO_BACK: "a batch begins below the end of the previous batch",
    OFFSET_GAP: "offsets are missing in a topic that is not compacted",
    EPOCH_GOES_BACK: "a batch has an older leader epoch than the previous batch",
    INDEX_DAMAGED: "an entry of the offset index points to no batch, lies beyond the segment, or is out of order",
    TIME_INDEX_DAMAGED: "an entry of the time index has another timestamp than the batches, or is out of order",
    TRANSACTION_INDEX_DAMAGED: "the transaction index has an entry without an abort marker, or lacks a transaction",
    BAD_MARKER: "a control batch of a transaction is neither a commit nor an abort",
    CHECKPOINT_CONTRADICTS: "the file leader-epoch-checkpoint contradicts the epochs of the batches, or cannot be read",
    ENDS_EARLY: "the log ends below its recovery point or its high watermark",
    REPLICAS_DIFFER: "replicas hold different batches at an offset that is committed in all of them",
    NO_PARTITION: "a file or folder that belongs to no partition",
    UNREADABLE: "a file or folder that cannot be read",
}
"""The meaning of each kind of problem."""


class Problem(NamedTuple):
    """A problem in one of a segment's files, which `suffix` names; `offset` is None if the problem has no offset."""

    kind: str
    suffix: str
    position: int
    offset: int | None
    detail: str
