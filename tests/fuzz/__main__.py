"""`python -m fuzz`: runs cases by number against a broker, and prints what it did and how to replay it."""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path

from fuzz.fuzzer import BrokerMisbehaved, FuzzedBroker, Fuzzer


def main() -> int:
    """Run the cases; return 1 if the broker broke a promise."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description="Hostile requests against a running broker.")
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--first", type=int, default=0, help="number of the first case, to replay one")
    options = parser.parse_args()
    print(f"seed {options.seed}; again: make fuzz FUZZ='--seed {options.seed} --cases {options.cases}'", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        return _fuzz(options, FuzzedBroker(Path(folder)))


def _fuzz(options: argparse.Namespace, broker: FuzzedBroker) -> int:
    began_s = time.monotonic()
    try:
        fuzzer = Fuzzer(broker, broker.start(), options.seed)
        try:
            asyncio.run(fuzzer.run(options.first, options.cases))
        except BaseExceptionGroup as errors:
            fuzzer.problems += [str(error) for error in errors.exceptions]
        except BrokerMisbehaved as error:
            fuzzer.problems.append(str(error))
        if broker.server.stop() != 0:
            fuzzer.problems.append("the broker did not end in order")
    finally:
        broker.server.close()
    print(f"{options.cases} cases, {sum(fuzzer.requests.values())} requests in {time.monotonic() - began_s:.0f} s")
    print(
        ", ".join(f"{count} {end}" for end, count in fuzzer.ends.most_common()), f"{fuzzer.answers_owed} answers owed"
    )
    print(getattr(fuzzer, "memory", "memory not looked at"))
    for problem in fuzzer.problems:
        print(f"\nPROBLEM: {problem}", file=sys.stderr)
    return int(bool(fuzzer.problems))


if __name__ == "__main__":
    sys.exit(main())
