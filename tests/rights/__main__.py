"""`make proof-acls`: runs the table of rights on our broker and on Apache Kafka, and compares each cell.

With `--write`, our responses become those that tests expect.
"""

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rights.cells import Way, cells, users
from rights.expected import ANSWERS, DIFFERENCES, leaks, lines_of
from rights.run import LISTENERS, NO_REFUSAL, Answered, answered
from rights.servers import SASL_PLAINTEXT, barnabas, kafka


def asked() -> Iterator[Answered]:
    """Yield the responses of our broker, then those of Kafka."""
    every = list(cells())
    names = users(every)
    with tempfile.TemporaryDirectory() as folder:
        for start in (barnabas, kafka):
            began_s = time.monotonic()
            with start(Path(folder) / start.__name__, names.values()) as server:
                found = answered(server, every, names, LISTENERS)
            print(f"{start.__name__}: {len(found.texts)} cells in {time.monotonic() - began_s:.0f} s")
            yield found


def faults(ours: Answered, theirs: Answered) -> Iterator[str]:
    """Yield all differences without a reason."""
    for (cell, listener), text in ours.texts.items():
        if text != theirs.texts[cell, listener] and cell.ask.title not in DIFFERENCES:
            yield f"{cell} on {listener}: {text}, and of Kafka: {theirs.texts[cell, listener]}"
        if cell.way is Way.ALL and text != NO_REFUSAL and cell.ask.title not in DIFFERENCES:
            yield f"{cell} on {listener}: {text}"
    yield from (f"changed by refused requests: {each}" for each in ours.changes)
    yield from (f"shows whether something is there: {each}" for each in leaks(ours.texts))


def main() -> int:
    """Print the differences; return 1 if one has no reason."""
    ours, theirs = asked()
    differing = Counter(key[0].ask.title for key, text in ours.texts.items() if text != theirs.texts[key])
    for title, count in differing.items():
        print(f"{title}: {count} cells differ; {DIFFERENCES.get(title, 'no reason is known')}")
    found = list(faults(ours, theirs))
    print(f"{sum(differing.values())} of {len(ours.texts)} cells differ from Kafka; {len(found)} without a reason")
    print("\n".join(found))
    print("\n".join(f"Kafka, changed by refused requests: {each}" for each in theirs.changes))
    if "--write" in sys.argv:
        ANSWERS.write_text("".join(lines_of(ours.texts, SASL_PLAINTEXT)), encoding="utf-8")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
