"""The expected responses of our broker as text, and the differences from Apache Kafka's."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from rights.cells import Cell, Way

ANSWERS: Final = Path(__file__).with_name("answers.txt")
DIFFERENCES: Final[Mapping[str, str]] = {
    "Produce in a transaction": "Kafka asks for the transactional id first, and refuses all partitions with 53",
    "Fetch of a replica": "Kafka refuses each partition with 29, and lets brokers fetch through any listener",
    "ListPartitionReassignments": "Kafka repeats the topics that were asked for, without an error",
    "DescribeUserScramCredentials": "Kafka adds a result without a name, with 31",
    "AlterUserScramCredentials": "Kafka refuses a user that is asked for twice once",
    "DeleteTopics": "Kafka says 3 of an absent topic to a user who may describe it",
    "OffsetDelete": "Kafka looks for the group before it refuses topics: 69 for an absent one",
}
"""The requests with other responses than Kafka's; docs/decisions/rights-beside-kafka.md gives the reasons."""
BY_ID: Final = frozenset(
    ("Produce", "Produce in a transaction", "Fetch", "Metadata by id", "DeleteTopics by id", "ShareFetch")
)
"""Requests with a topic's id, which is no secret: for an unknown id the response says so, as in Kafka."""


def lines_of(texts: Mapping[tuple[Cell, str], str], listener: str) -> Iterator[str]:
    """Yield the lines of the file: a request without a right, the response, and its versions and resources."""
    places: dict[tuple[str, str], list[str]] = {}
    for (cell, of_listener), text in texts.items():
        if of_listener == listener and cell.way is not Way.ALL:
            places.setdefault((cell.title, text), []).append(cell.place)
    for (title, text), of_answer in places.items():
        yield f"{title} ({', '.join(of_answer)}): {text}\n"


def leaks(texts: Mapping[tuple[Cell, str], str]) -> list[str]:
    """Return the cells of users without any right whose responses show whether a resource exists."""
    return [
        f"{cell} on {listener}: {text}"
        for (cell, listener), text in texts.items()
        if cell.way is Way.NOTHING and cell.ask.title not in BY_ID
        if text != texts[cell._replace(is_there=not cell.is_there), listener]
    ]
