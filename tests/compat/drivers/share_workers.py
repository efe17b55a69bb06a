"""Members of a share group with several client libraries, which all do the same with a record of the same number.

A record's value is its number. A member that acknowledges explicitly rejects each tenth, releases another tenth once,
renews the lock of another one where its library can, releases each 25th always, and accepts all others. One that
acknowledges implicitly accepts all.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from threading import Event, Lock, Thread
from typing import Any, Final, NamedTuple, Protocol

from confluent_kafka import AcknowledgeType, KafkaException, Message, ShareConsumer, TopicPartition

ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3
RENEW: Final = 4
MODE: Final = "share.acknowledgement.mode"
EXPLICIT: Final = {MODE: "explicit"}
IMPLICIT: Final = {MODE: "implicit"}


class Note(NamedTuple):
    """The acknowledgement of a record; `is_stored` is True if the broker has said that it is stored."""

    number: int
    kind: int
    is_stored: bool


class Worker(Protocol):
    """A member that works until it rests. Both methods return all notes so far."""

    def worked(self) -> list[Note]: ...

    def rest(self) -> list[Note]: ...


class RemoteWorker:
    """A member in the driver of another language."""

    def __init__(self, driver: Any, member: str, topic: str, config: Mapping[str, str]) -> None:
        self._driver, self._member = driver, member
        driver.ask("work", group=topic, member=member, topic=topic, config=dict(config))

    def worked(self) -> list[Note]:
        return _notes(self._driver.ask("worked", member=self._member))

    def rest(self) -> list[Note]:
        return _notes(self._driver.ask("rest", member=self._member))


def _notes(state: Mapping[str, Any]) -> list[Note]:
    assert state["failure"] is None, state["failure"]
    return [Note(*each) for each in state["notes"]]


class LibrdkafkaWorker:
    """A member with librdkafka in a thread."""

    def __init__(self, settings: Mapping[str, Any], topic: str, config: Mapping[str, str]) -> None:
        self._consumer = ShareConsumer({**settings, "group.id": topic, **config})
        self._is_explicit = config == EXPLICIT
        self._consumer.subscribe([topic])
        self._notes: list[Note] = []
        self._lock, self._rests = Lock(), Event()
        self._failure: Exception | None = None
        self._thread = Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._rests.is_set():
                self._work()
            self._consumer.close()
        except Exception as error:
            self._failure = error

    def _work(self) -> None:
        messages = [each for each in self._consumer.poll(0.1) if each.error() is None]
        kinds = [decide(each) if self._is_explicit else AcknowledgeType.ACCEPT for each in messages]
        if self._is_explicit:
            for message, kind in zip(messages, kinds, strict=True):
                self._consumer.acknowledge(message, kind)
        stored = self._stored()
        with self._lock:
            for message, kind in zip(messages, kinds, strict=True):
                is_stored = stored.get((message.topic(), message.partition()), False)
                self._notes.append(Note(number(message), int(kind), is_stored))

    def _stored(self) -> dict[tuple[str | None, int | None], bool]:
        """Return whether the acknowledgements are stored, by partition."""
        try:
            outcomes: Mapping[TopicPartition, KafkaException | None] = self._consumer.commit_sync()
        except KafkaException:
            return {}
        return {(each.topic, each.partition): error is None for each, error in outcomes.items()}

    def worked(self) -> list[Note]:
        assert self._failure is None, self._failure
        with self._lock:
            return list(self._notes)

    def rest(self) -> list[Note]:
        self._rests.set()
        self._thread.join()
        return self.worked()


def decide(message: Message) -> AcknowledgeType:
    """Return what an explicit member does with a record."""
    found = number(message)
    if found % 10 == 3:
        return AcknowledgeType.REJECT
    if found % 25 == 9 or (found % 10 == 5 and delivery_count(message) == 1):
        return AcknowledgeType.RELEASE
    return AcknowledgeType.ACCEPT


def number(message: Message) -> int:
    return int(message.value() or b"-1")


def delivery_count(message: Message) -> int:
    """Return how often the record was delivered; 1 if the library does not say."""
    count: Callable[[], int | None] | None = getattr(message, "delivery_count", None)
    return (count() if count is not None else None) or 1


def problems(notes: list[Note], letters: Counter[int], count: int) -> list[str]:
    """Return what is wrong once the records 0 to `count - 1` are finished."""
    accepted = Counter(each.number for each in notes if each.kind == ACCEPT and each.is_stored)
    perhaps = {each.number for each in notes if each.kind == ACCEPT}
    found = [f"{each} was accepted {times} times" for each, times in accepted.items() if times > 1]
    found += [f"{each} was accepted, and has a dead letter" for each in sorted(accepted.keys() & letters.keys())]
    found += [f"{each} has {times} dead letters" for each, times in letters.items() if times > 1]
    lost = sorted(set(range(count)) - perhaps - letters.keys())
    return found + ([f"lost: {lost}"] if lost else [])
