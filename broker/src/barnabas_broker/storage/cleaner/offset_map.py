"""A map from keys to their newest offsets in a fixed number of bytes, independent of the length of the keys."""

from array import array
from typing import Final

from mmh3 import mmh3_x64_128_utupledigest

SLOT_BYTES: Final = 24
"""The bytes of an offset and a 128-bit hash of the key. Two keys with equal hashes are too rare to matter."""
_NUMBERS: Final = 3
_ROOM: Final = 1.1
"""The factor by which the number of slots is increased before it is rounded down to a prime."""


class OffsetMap:
    """A hash table from key hashes to newest offsets, with open addressing and double hashing."""

    __slots__ = ("_numbers", "_slots", "count", "count_max")

    def __init__(self, bytes_max: int, keys_max: int, load_factor: float) -> None:
        """Allocate slots for `keys_max` keys, in at most `bytes_max` bytes.

        `load_factor` (0 to 1) is the maximum share of used slots.
        """
        wanted = min(bytes_max // SLOT_BYTES, int(keys_max / load_factor * _ROOM) + 11)
        self._slots = _prime_at_most(max(wanted, 3))
        self._numbers = array("Q", [0]) * (self._slots * _NUMBERS)
        self.count = 0
        self.count_max = min(
            max(int(self._slots * load_factor), 1), self._slots - 1
        )  # One slot stays free, because the search for a missing key ends at a free slot.

    def put(self, key: bytes, offset: int) -> bool:
        """Store the newest offset of a key. Return False and store nothing if there is no room for a new key."""
        place, high, low = self._find(key)
        numbers = self._numbers
        if not numbers[place]:
            if self.count >= self.count_max:
                return False
            self.count += 1
            numbers[place + 1] = high
            numbers[place + 2] = low
        numbers[place] = offset + 1
        return True

    def get(self, key: bytes) -> int:
        """Return the newest offset of a key, or -1 for a key that is not in the map."""
        return self._numbers[self._find(key)[0]] - 1

    def _find(self, key: bytes) -> tuple[int, int, int]:
        """Return the position of the key's slot, or of the free slot for it, and the two halves of the key's hash."""
        numbers, slots = self._numbers, self._slots
        low, high = mmh3_x64_128_utupledigest(key)
        slot = low % slots
        step = 1 + high % (slots - 1)
        while True:
            place = slot * _NUMBERS
            if not numbers[place] or (numbers[place + 2] == low and numbers[place + 1] == high):
                return place, high, low
            slot += step
            if slot >= slots:
                slot -= slots


def _prime_at_most(number: int) -> int:
    """Return the largest prime up to `number`. With a prime number of slots, a search can reach every slot."""
    while any(number % divisor == 0 for divisor in range(2, int(number**0.5) + 1)):
        number -= 1
    return number
