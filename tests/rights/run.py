"""Sends all cells to one broker, and collects the responses and the changes."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from rights.answers import REFUSALS, codes_in, text_of
from rights.cells import ABSENT, NO_TOPIC, THERE, Cell, Grants, Way, names
from rights.client import Client
from rights.servers import SASL_PLAINTEXT, SASL_SSL, Server, prepare, state

CLOSED: Final = "closed"
NO_REFUSAL: Final = "no refusal"
LISTENERS: Final = (SASL_PLAINTEXT, SASL_SSL)


class Answered(NamedTuple):
    """The responses of one broker."""

    texts: dict[tuple[Cell, str], str]
    """The responses by cell and listener; for users with all rights only whether anything was refused."""
    changes: list[str]
    """The changes that the refused requests have made."""


def answered(server: Server, cells: list[Cell], users: Mapping[Grants, str], listeners: Iterable[str]) -> Answered:
    """Send the requests without a right first, then check for changes, then send the rest."""
    topic_id = prepare(server, users)
    lacking = [each for each in cells if each.way is not Way.ALL]
    before = state(server)
    texts: dict[tuple[Cell, str], str] = {}
    for listener in listeners:
        for cell, text, _ in _ask_all(server, lacking, users, listener, topic_id):
            texts[cell, listener] = text
    changes = [f"{one} became {other}" for one, other in zip(before, state(server), strict=True) if one != other]
    whole = [each for each in cells if each.way is Way.ALL]
    for listener in listeners:
        for cell, text, codes in _ask_all(server, whole, users, listener, topic_id):
            texts[cell, listener] = text if codes & REFUSALS else NO_REFUSAL
    return Answered(texts, changes)


def _ask_all(
    server: Server, cells: list[Cell], users: Mapping[Grants, str], listener: str, topic_id: UUID
) -> Iterator[tuple[Cell, str, set[int]]]:
    by_user = sorted(cells, key=lambda each: users[each.grants])
    for user, of_user in itertools.groupby(by_user, key=lambda each: users[each.grants]):
        client = server.client(user, listener)
        for cell in of_user:
            try:
                text, codes = _ask(client, cell, topic_id)
            except ConnectionResetError:
                text, codes = CLOSED, {0}
                client = server.client(user, listener)
            yield cell, text, codes
        client.close()


def _ask(client: Client, cell: Cell, topic_id: UUID) -> tuple[str, set[int]]:
    request = cell.ask.request(names(is_there=cell.is_there, topic_id=topic_id), cell.version)
    answer = client.ask(request, cell.version)
    ids = {topic_id: "the id", NO_TOPIC: "the id"}
    text = text_of(answer, cell.version, ids)
    for end in (THERE, ABSENT):
        text = text.replace(f"-{end}", "")
    return text, codes_in(answer)
