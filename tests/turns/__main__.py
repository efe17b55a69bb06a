"""`make proof-turns`: sends the largest request of each API to a real broker, and prints the longest turn of its loop.

Each request is sent on 1 and on 16 connections, by a super user and by a user without any right.
PROOF='--connections 1 Metadata Fetch.topics' sends the requests of one API, and of one array, on one connection. With
`--existing 2000` so many topics and groups with the names in the requests exist, and the first topic has so many
partitions. With `--rounds 3` each request is sent three times, and the median is printed.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, Final, NamedTuple

from harness.barnabas_server import peak_resident_bytes
from harness.deadline import wait_for
from rights.client import Client
from rights.servers import ADMIN, Server, barnabas
from turns.largest import Largest, largest_requests

AIM_S: Final = 0.05
CROWDS: Final = (1, 16)
STRANGER: Final = "eve"
SECONDS_MAX: Final = 300.0
CREATED_AT_ONCE: Final = 500
Way = tuple[str, int]
"""A user, and the number of connections."""


class Turn(NamedTuple):
    """The longest turn during a request, in CPU seconds, and the longest work in it."""

    cpu_s: float = 0.0
    what: str = ""


def ask(server: Server, user: str, crowd: int, frame: bytes) -> str:
    """Send the request on each connection; return "closed" if the broker closes one, otherwise an empty text."""
    with ExitStack() as stack:
        clients = [stack.enter_context(server.client(user)) for _ in range(crowd)]
        senders = [Thread(target=each.send_frame, args=(frame,)) for each in clients]
        for each in senders:
            each.start()
        outcomes = [outcome(each) for each in clients]
        for each in senders:
            each.join()
    return next(filter(None, outcomes), "")


def outcome(client: Client) -> str:
    """Read a response; return an empty text, or why there is none."""
    try:
        client.receive_frame(SECONDS_MAX)
    except OSError as error:
        return "closed" if isinstance(error, ConnectionError) else "no answer"
    return ""


def longest(turns: Path, since: int) -> Turn:
    """Return the longest turn that the broker has written after the first `since` bytes of the file."""
    lines = turns.read_text(encoding="ascii")[since:].splitlines()
    found = [Turn(float(seconds), what) for seconds, _, what in (line.partition(" ") for line in lines)]
    return max(found, default=Turn())


def measure(server: Server, turns: Path, largest: Largest, ways: Sequence[Way]) -> Iterator[tuple[Turn, str]]:
    """Yield the longest turn for each way to send the request."""
    for user, crowd in ways:
        since = turns.stat().st_size
        why = ask(server, user, crowd, largest.frame)
        server.client(user).close()  # The turn of the last response has now ended.
        yield longest(turns, since), why


def medians(server: Server, turns: Path, largest: Largest, ways: Sequence[Way], rounds: int) -> list[tuple[Turn, str]]:
    """Send the request so many times in each way; return the median of the longest turns of each way."""
    found = [list(measure(server, turns, largest, ways)) for _ in range(rounds)]
    return [sorted(of_way)[rounds // 2] for of_way in zip(*found, strict=True)]


def row(largest: Largest, found: list[tuple[Turn, str]]) -> str:
    """Return a row of the table, in milliseconds."""
    cells = [f"{turn.cpu_s * 1000:.0f}{f' ({why})' if why else ''}" for turn, why in found]
    return f"| {largest.api} | `{largest.path}` | {largest.elements:,} | " + " | ".join(cells) + " |"


def make_existing(client: Client, count: int) -> None:
    """Create topics and groups with the first names in the requests."""
    for begin in range(0, count, CREATED_AT_ONCE):
        numbers = range(begin, min(begin + CREATED_AT_ONCE, count))
        topics = [
            {"name": f"topic-{each}", "num_partitions": 1 if each else count, "replication_factor": 1}
            for each in numbers
        ]
        made = client.request("CreateTopics", 7, {"topics": topics, "timeout_ms": 60_000})
        assert not any(each.error_code for each in made.topics), made
    for number in range(count):
        offset = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
        topics = [{"name": "topic-0", "partitions": [offset]}]
        group = {"group_id": f"group-{number}", "generation_id_or_member_epoch": -1, "topics": topics}
        wait_for(partial(is_committed, client, group))


def is_committed(client: Client, group: Mapping[str, Any]) -> bool:
    """True if the offset of a group is committed; the coordinator of the first group is made meanwhile."""
    client.request("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": [group["group_id"]]})
    (topic,) = client.request("OffsetCommit", 8, group).topics
    return not topic.partitions[0].error_code


def main() -> int:
    """Print the table; return 1 if a turn was longer than AIM_S."""
    parser = argparse.ArgumentParser(prog="turns")
    parser.add_argument("apis", nargs="*", help="names of APIs, or of arrays (Fetch.topics); all if there is none")
    parser.add_argument("--connections", nargs=1, type=int, default=CROWDS, help="only on so many connections")
    parser.add_argument("--existing", type=int, default=0, help="the number of topics and groups that exist")
    parser.add_argument("--super-user-only", action="store_true", help="do not send requests without rights")
    parser.add_argument("--rounds", type=int, default=1, help="send each request so often, and print the median")
    chosen = parser.parse_args()
    users = (ADMIN,) if chosen.super_user_only else (STRANGER, ADMIN)
    ways = [(user, crowd) for user in users for crowd in chosen.connections]
    titles = [f"{'without rights' if user == STRANGER else 'super user'}, {crowd}" for user, crowd in ways]
    print(f"| API | array | elements | {' | '.join(titles)} |\n|---|---|{'---|' * (1 + len(ways))}")
    misses = []
    with tempfile.TemporaryDirectory() as folder:
        turns = Path(folder) / "turns"
        turns.touch()
        measured = "-m", "turns.measured_broker", str(turns)
        with barnabas(Path(folder) / "broker", [STRANGER], measured) as server:
            with server.client(ADMIN) as client:
                make_existing(client, chosen.existing)
            for largest in largest_requests(set(chosen.apis)):
                found = medians(server, turns, largest, ways, chosen.rounds)
                print(row(largest, found), flush=True)
                misses += [largest.api for turn, _ in found if turn.cpu_s > AIM_S]
            print(f"the broker has held at most {peak_resident_bytes(server.process.pid) >> 20} MiB")
    print(f"turns above {AIM_S * 1000:.0f} ms: {', '.join(dict.fromkeys(misses)) or 'none'}")
    return 1 if misses else 0


if __name__ == "__main__":
    sys.exit(main())
