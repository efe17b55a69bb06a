"""The Java client's choice of partition for a key. Other clients follow it, so that a key stays where it is."""

from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = (1 << 32) - 1


def murmur2(key: bytes) -> int:
    """Kafka's 32-bit MurmurHash2, unsigned. (The mmh3 package has Murmur3: another function.)"""
    length = len(key)
    value = (_SEED ^ length) & _MASK
    whole = length & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(key[position : position + 4], "little") * _M & _MASK
        value = (value * _M & _MASK) ^ ((word ^ (word >> 24)) * _M & _MASK)
    if whole < length:
        value = (value ^ int.from_bytes(key[whole:], "little")) * _M & _MASK
    value = (value ^ (value >> 13)) * _M & _MASK
    return value ^ (value >> 15)


def partition_for_key(key: bytes, partitions: int) -> int:
    """The partition, from 0, of a record with this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
