"""The records of open transactions in a coordinator's topic.

The records of a transaction take effect when the transaction commits. A record does not take effect if a later record
in the log with the same key has already taken effect.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from barnabas_broker.wire.key_values import Marker, NewestSlice, TransactionalKeyValues

ValueT = TypeVar("ValueT")
OtherT = TypeVar("OtherT")


class PendingRecords(Generic[ValueT]):
    """The records of open transactions in one partition, by producer id and key, and by name."""

    def __init__(self, name_of: Callable[[ValueT], str] = lambda _: "") -> None:
        """Create an empty collection; `name_of` returns the name of a record, such as its group id."""
        self._name_of = name_of
        self._by_producer: dict[int, dict[bytes, tuple[int, ValueT]]] = {}
        """The records by producer id and key, each with its order number, which is higher for later records."""
        self._producers: dict[bytes, set[int]] = {}
        self._counting: dict[bytes, int] = {}
        """The order number of the newest record that has taken effect, by key; only for keys with pending records."""
        self._keys: dict[str, dict[bytes, None]] = {}
        """The keys with pending records, by the name of their records."""
        self._last = 0

    def __bool__(self) -> bool:
        return bool(self._producers)

    def __contains__(self, key: bytes) -> bool:
        """True if an open transaction has a record with this key."""
        return key in self._producers

    @property
    def names(self) -> list[str]:
        """The names of all records."""
        return list(self._keys)

    def count(self, name: str) -> int:
        """Return the number of keys of the records with this name."""
        return len(self._keys.get(name, ()))

    def of(self, name: str) -> list[ValueT]:
        """Return the records with this name; an earlier open transaction may have another record with the same key."""
        by_producer = self._by_producer
        return [by_producer[each][key][1] for key in self._keys.get(name, ()) for each in self._producers[key]]

    def decoded(
        self, decode: Callable[[bytes, ValueT], OtherT | None], name_of: Callable[[OtherT], str]
    ) -> "PendingRecords[OtherT]":
        """Return a copy in which all records are decoded; records for which `decode` returns None are left out."""
        made: PendingRecords[OtherT] = PendingRecords(name_of)
        made._last, made._counting = self._last, dict(self._counting)
        for producer_id, pending in self._by_producer.items():
            for key, (order, value) in pending.items():
                record = decode(key, value)
                if record is not None:
                    made._put(producer_id, key, order, record)
        return made

    def add(self, producer_id: int, key: bytes, value: ValueT) -> None:
        """Add a record of an open transaction."""
        self._last += 1
        self._put(producer_id, key, self._last, value)

    def _put(self, producer_id: int, key: bytes, order: int, value: ValueT) -> None:
        self._by_producer.setdefault(producer_id, {})[key] = order, value
        if key not in self._producers:
            self._producers[key] = set()
            self._keys.setdefault(self._name_of(value), {})[key] = None
        self._producers[key].add(producer_id)

    def replaced(self, key: bytes) -> None:
        """Mark the pending records with this key as outdated, because a later record with the key has taken effect."""
        if key in self._producers:
            self._last += 1
            self._counting[key] = self._last

    def removed(self, key: bytes) -> None:
        """Remove the pending records with this key, because a tombstone has deleted the key."""
        values = [self._by_producer[each].pop(key)[1] for each in self._producers.get(key, ())]
        if values:
            self._forget(key, values[0])

    def _forget(self, key: bytes, value: ValueT) -> None:
        """Remove a key without pending records; `value` is one of the records that it had."""
        del self._producers[key]
        self._counting.pop(key, None)
        name = self._name_of(value)
        del self._keys[name][key]
        if not self._keys[name]:
            del self._keys[name]

    def end(self, producer_id: int, *, is_commit: bool) -> list[tuple[bytes, ValueT]]:
        """End the transaction of a producer; return the keys and records that take effect.

        Return an empty list after an abort.
        """
        counting = []
        for key, (order, value) in self._by_producer.pop(producer_id, {}).items():
            if is_commit and order > self._counting.get(key, 0):
                self._counting[key] = order
                counting.append((key, value))
            others = self._producers[key]
            others.discard(producer_id)
            if not others:
                self._forget(key, value)
        return counting


class LoadedRecords:
    """The records read from a log: the newest value of each key, and the records of open transactions."""

    def __init__(self) -> None:
        self.newest: dict[bytes, bytes | None] = {}
        self.pending: PendingRecords[bytes] = PendingRecords()

    def add(self, some: NewestSlice) -> int:
        """Add the records that were read next from the log, or end a transaction if a transaction marker was read.

        Return the number of records, which is 0 for a marker.
        """
        if isinstance(some, Marker):
            self.newest.update(self.pending.end(some.producer_id, is_commit=some.is_commit))
            return 0
        if isinstance(some, TransactionalKeyValues):
            for key, value in some.key_values.items():
                if value is not None:
                    self.pending.add(some.producer_id, key, value)
            return len(some.key_values)
        self.newest.update(some)
        if self.pending:
            for key, value in some.items():
                if value is None:
                    self.pending.removed(key)
                else:
                    self.pending.replaced(key)
        return len(some)
