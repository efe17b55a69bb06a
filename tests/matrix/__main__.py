"""`make proof-matrix`: compares the answers of our broker and of Apache Kafka in each state (`cells.py`).

PROOF='--only transactions-2' runs one subject. `--write` records the answers of Apache Kafka, which are those that
`make test` compares with.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from matrix.cells import Subject
from matrix.nodes import SERVERS
from matrix.subjects import SUBJECTS


def answers(server: str, subjects: list[Subject]) -> dict[str, dict[str, str]]:
    """Return the answers of a server by subject and cell."""
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, SERVERS[server](Path(folder) / server) as nodes:
        found = {each.title: each.answers(nodes) for each in subjects}
    print(f"{server}: {sum(map(len, found.values()))} cells in {time.monotonic() - began_s:.0f} s")
    return found


def main() -> int:
    """Print the differences; return 1 if one has no reason."""
    parser = argparse.ArgumentParser(prog="matrix")
    parser.add_argument("--only", choices=[each.title for each in SUBJECTS])
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    subjects = [each for each in SUBJECTS if chosen.only in (None, each.title)]
    theirs, ours = answers("kafka", subjects), answers("barnabas", subjects)
    faults = []
    for subject in subjects:
        if chosen.write:
            subject.record(theirs[subject.title])
        recorded, kafka = subject.recorded(), theirs[subject.title]
        changed = [cell for cell in {**recorded, **kafka} if recorded.get(cell) != kafka.get(cell)]
        faults += [f"{subject.title}: {cell}: {kafka.get(cell)}, and not as recorded" for cell in changed]
        faults += [f"{subject.title}: {each}" for each in subject.faults(ours[subject.title], kafka)]
        differing = sum(text != kafka.get(cell) for cell, text in ours[subject.title].items())
        print(f"{subject.title}: {differing} of {len(kafka)} cells differ from Apache Kafka")
    print(f"{len(faults)} without a reason", *faults, sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
