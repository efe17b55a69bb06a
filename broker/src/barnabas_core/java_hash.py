"""Java's String.hashCode, and the coordinator partition that Kafka computes from it."""

from typing import Final

_SIGN: Final = 1 << 31
_MASK: Final = (1 << 32) - 1


def string_hash(text: str) -> int:
    """Return `text.hashCode()`: a signed 32-bit hash over UTF-16 code units."""
    units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    value = 0
    for unit in units:
        value = (31 * value + unit) & _MASK
    return value - (1 << 32) if value & _SIGN else value


def coordinator_partition(key: str, partitions: int) -> int:
    """Return the partition of the internal topic whose leader coordinates `key`, a group id or a transactional id.

    As in Kafka's Utils.abs, the absolute value of the smallest integer is 0.
    """
    value = string_hash(key)
    return 0 if value == -_SIGN else abs(value) % partitions
