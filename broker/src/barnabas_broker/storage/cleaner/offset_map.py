"""The newest offset of each key in a fixed number of bytes, however long the keys are."""

from array import array
from typing import Final

from mmh3 import mmh3_x64_128_utupledigest

SLOT_BYTES: Final = 24
"""The size of an offset and a 128-bit hash; two keys with the same hash are too improbable to matter."""
_NUMBERS: Final = 3
_ROOM: Final = 1.1
"""The margin for the number of slots, as the next prime below is a little smaller."""


class OffsetMap:
    """Hashes of keys and their newest offsets; open addressing with double hashing over a prime number of slots."""

    __slots__ = ("_numbers", "_slots", "count", "count_max")

    def __init__(self, bytes_max: int, keys_max: int, load_factor: float) -> None:
        """Make room for `keys_max` keys, or for as many as fit in `bytes_max`, filled up to `load_factor` (0 to 1)."""
        wanted = min(bytes_max // SLOT_BYTES, int(keys_max / load_factor * _ROOM) + 11)
        self._slots = _prime_at_most(max(wanted, 3))
        self._numbers = array("Q", [0]) * (self._slots * _NUMBERS)
        self.count = 0
        self.count_max = min(
            max(int(self._slots * load_factor), 1), self._slots - 1
        )  # One slot stays free, to end searches.

    def put(self, key: bytes, offset: int) -> bool:
        """Store the newest offset of a key. Return False, and store nothing, if there is no room for a new key."""
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
        """The newest offset; -1 for a key that was not put."""
        return self._numbers[self._find(key)[0]] - 1

    def _find(self, key: bytes) -> tuple[int, int, int]:
        """Return the place of the key, or the free place that it would take, and the two halves of its hash."""
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
    """Return the largest prime up to `number`: with a prime number of slots a search reaches all of them."""
    while any(number % divisor == 0 for divisor in range(2, int(number**0.5) + 1)):
        number -= 1
    return number
