"""Output for people: lines with the time, and tables, in plain text if the output is no terminal."""

import re
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from barnabas_operator.resources.consumer_group import ConsumerGroup
from barnabas_operator.resources.kind import READY, RECONCILIATION_PAUSED, WITHIN_OBJECTIVE, Conditions, condition_of
from barnabas_operator.resources.topic import Topic
from barnabas_operator.resources.user import User
from barnabas_operator.resources.yaml_documents import ManifestError

WIDTH_WITHOUT_TERMINAL = 160
BYTES_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def console() -> Console:
    """Return the standard output as a console, wide enough for tables in a file or a pipe."""
    return Console(width=None if sys.stdout.isatty() else WIDTH_WITHOUT_TERMINAL, highlight=False, soft_wrap=True)


class Log:
    """Lines for people, each with the time of day."""

    def __init__(self, out: Console) -> None:
        self.out = out

    def say(self, text: str) -> None:
        """Print a text; indent all its lines except the first."""
        first, *others = text.splitlines() or [""]
        self.out.print(f"[dim]{time.strftime('%H:%M:%S')}[/dim] {escape(first)}")
        for line in others:
            self.out.print(f"         {escape(line)}")

    def complain(self, headline: str, errors: Iterable[ManifestError]) -> None:
        """Print a headline, and then each error as `file:line:column: what`.

        The errors are not indented, so that editors recognize the location of an error.
        """
        self.say(headline)
        for error in errors:
            self.out.print(f"[red]{escape(str(error))}[/red]")


def table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Return a table; columns whose headings end in `>` are right-aligned."""
    made = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), header_style="bold")
    for heading in headings:
        right = heading.endswith(">")
        made.add_column(heading.rstrip(">"), justify="right" if right else "left", overflow="fold")
    for row in rows:
        made.add_row(*map(escape, row))
    return made


def topics_table(rows: Iterable[Sequence[str]]) -> Table:
    """Return the rows of `topic_rows` as a table, as `kubectl get topics` prints them."""
    return table("", ("TOPIC", "READY", "PARTITIONS>", "REPLICAS>", "MESSAGE"), rows)


def topic_rows(topics: Iterable[Topic]) -> list[tuple[str, ...]]:
    """Return a row for each reconciled topic."""
    return [_topic_row(topic) for topic in topics]


def _topic_row(topic: Topic) -> tuple[str, ...]:
    status = topic.status
    assert status is not None, "a topic must have a status to be shown"
    word, message = _ready(status.conditions)
    return topic.topic_name, word, number(status.partitions), number(status.replicas), message


def _ready(conditions: Conditions) -> tuple[str, str]:
    """Return the status of the condition Ready (`paused` for a paused resource), and its reason with the message."""
    ready = condition_of(conditions, READY)
    word = "paused" if condition_of(conditions, RECONCILIATION_PAUSED) else (ready.status if ready else "Unknown")
    return word, f"{ready.reason}: {ready.message}" if ready and ready.message else ""


NUMBERS: Final = re.compile(r"[0-9][0-9.,]*")
GROUP_NUMBERS: Final = slice(3, 6)
"""The columns of numbers in a group's row. `without_numbers` leaves them out, because they change all the time."""


def users_table(rows: Iterable[Sequence[str]]) -> Table:
    """Return the rows of `user_rows` as a table, as `kubectl get users` prints them."""
    return table("", ("USER", "READY", "AUTHENTICATION", "MESSAGE"), rows)


def user_rows(users: Iterable[User]) -> list[tuple[str, ...]]:
    """Return a row for each declared user."""
    return [
        (user.username, _ready(user.conditions)[0], user.spec.authentication.type, _ready(user.conditions)[1])
        for user in users
    ]


def declared_groups_table(rows: Iterable[Sequence[str]]) -> Table:
    """Return the rows of `group_rows` as a table, as `kubectl get consumergroups` prints them."""
    headings = ("GROUP", "READY", "STATE", "MEMBERS>", "LAG>", "SECONDS>", "EVALUATION", "OBJECTIVE", "MESSAGE")
    return table("", headings, rows)


def group_rows(groups: Iterable[ConsumerGroup]) -> list[tuple[str, ...]]:
    """Return a row for each declared group."""
    return [_group_row(group) for group in groups]


def without_numbers(row: tuple[str, ...]) -> tuple[str, ...]:
    """Return a group's row without its numbers, so that a comparison with an earlier row ignores changed numbers."""
    return (*row[: GROUP_NUMBERS.start], *row[GROUP_NUMBERS.stop : -1], NUMBERS.sub("", row[-1]))


def _group_row(group: ConsumerGroup) -> tuple[str, ...]:
    status = group.status
    assert status is not None, "a group must have a status to be shown"
    objective = condition_of(status.conditions, WITHIN_OBJECTIVE)
    numbers = map(number, (status.members, status.lag, status.seconds))
    words = (status.evaluation or "-", objective.status if objective is not None else "-")
    word, message = _ready(status.conditions)
    return group.group_id, word, status.state or "-", *numbers, *words, message


def number(value: int | None) -> str:
    """Return a number with commas between thousands, or a dash for None."""
    return "-" if value is None else f"{value:,}"


def size(value: int | None) -> str:
    """Return a size in the largest unit that makes the number at least 1, or a dash for None."""
    if value is None:
        return "-"
    scaled, unit = float(value), 0
    while scaled >= 1024 and unit < len(BYTES_UNITS) - 1:
        scaled, unit = scaled / 1024, unit + 1
    return f"{scaled:.1f} {BYTES_UNITS[unit]}" if unit else f"{value} B"
