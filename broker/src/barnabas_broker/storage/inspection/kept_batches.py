"""The copies of batches that wait before they are appended."""

from barnabas_core.errors import ApiError, ErrorCode


class CannotKeep(ApiError):
    """The error for a batch that may not wait, because too many bytes wait already. The error is retriable."""


class KeptBatches:
    """Copies of batches with at most `bytes_max` bytes in total; `awaited` says in messages what they wait for."""

    __slots__ = ("_awaited", "_bytes_max", "bytes_kept")

    def __init__(self, bytes_max: int, awaited: str) -> None:
        self._bytes_max = bytes_max
        self._awaited = awaited
        self.bytes_kept = 0

    def keep(self, batch: memoryview) -> bytes:
        """Return a copy of the batch, which counts until `release`. A batch that is the only copy may have any size.

        Raises CannotKeep if there are other copies, and all copies together would have more than `bytes_max` bytes.
        """
        if self.bytes_kept and self.bytes_kept + len(batch) > self._bytes_max:
            message = (
                f"too many batches wait {self._awaited}: they have {self.bytes_kept} bytes in total, and the limit is "
                f"{self._bytes_max} bytes; try again"
            )
            raise CannotKeep(ErrorCode.REQUEST_TIMED_OUT, message)
        self.bytes_kept += len(batch)
        return bytes(batch)

    def release(self, batch: bytes) -> None:
        """Release a copy that `keep` returned."""
        self.bytes_kept -= len(batch)
