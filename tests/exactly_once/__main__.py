"""Exactly-once with real programs on three brokers that are killed and rolled: `make proof-transactions`."""

import argparse
import random
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from exactly_once import clients
from exactly_once.chain import Chain
from exactly_once.faults import Proof, run
from exactly_once.source import Source
from exactly_once.words import Words
from harness.cluster import barnabas_cluster
from harness.kafka_cluster import prepare_kafka_cluster

MIN_ISR = {"min.insync.replicas": "2", "default.replication.factor": "3"}
SHORT_SESSIONS = {"group.consumer.min.session.timeout.ms": "10000", "group.consumer.session.timeout.ms": "10000"}
"""The sessions of killed copiers end between two faults: each start of a coordinator begins them again, as in Kafka.

With 45 s, the default, a partition of a killed copier stood still through 13 faults. Classic copiers have 10 s, too.
"""


def beside_kafka(folder: Path, options: argparse.Namespace) -> list[str]:
    """Run the clients' transactions on three nodes of Apache Kafka; return the problems."""
    with closing(prepare_kafka_cluster(folder / "kafka", 3, MIN_ISR, "512M")) as cluster:
        cluster.start()
        return clients.run(cluster, options.transactions, folder, random.Random(options.seed))


def on_barnabas(folder: Path, options: argparse.Namespace) -> list[str]:
    """Run all proofs on three brokers, one after the other or beside each other; return the problems."""
    chance = random.Random(options.seed)
    with barnabas_cluster(folder, 3, {**MIN_ISR, **SHORT_SESSIONS}) as cluster:
        all_parts: list[tuple[int, Callable[[], Proof]]] = [
            (options.records, lambda: Chain(cluster, options.records, options.protocol)),
            (options.lines, lambda: Words(cluster, options.lines, chance)),
            (options.numbers, lambda: Source(cluster, options.numbers)),
        ]
        parts = [make for size, make in all_parts if size]
        if options.together:
            wrong = run(cluster, [make() for make in parts], chance, options.kills)
        else:
            wrong = [each for make in parts for each in run(cluster, [make()], chance, options.kills)]
        wrong += clients.run(cluster, options.transactions, folder, chance) if options.transactions else []
        failed = [number for number, broker in cluster.brokers.items() if "Traceback" in broker.log_text()]
        wrong += [f"broker {number} printed a Traceback" for number in failed]
        if wrong:
            print(cluster.logs_text(), file=sys.stderr)
    return wrong


def main() -> int:
    """Run the proofs; return 0 if all records were there exactly once."""
    parser = argparse.ArgumentParser(prog="make proof-transactions", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000, help="that the chain copies")
    parser.add_argument("--protocol", choices=["classic", "consumer"], default="classic", help="of the chain's groups")
    parser.add_argument("--kills", type=int, default=0, help="at least so many of brokers and programs")
    parser.add_argument("--together", action="store_true", help="run the programs beside each other")
    parser.add_argument("--lines", type=int, default=20_000, help="that Kafka Streams counts the words of")
    parser.add_argument("--numbers", type=int, default=50_000, help="that a source of Kafka Connect counts")
    parser.add_argument("--transactions", type=int, default=200, help="of each client library")
    parser.add_argument(
        "--kafka", action="store_true", help="run those of the client libraries on Apache Kafka instead"
    )
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="of the faults")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        wrong = (beside_kafka if options.kafka else on_barnabas)(Path(folder), options)
    print("\n".join(wrong) or "everything is there once, in its order")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
