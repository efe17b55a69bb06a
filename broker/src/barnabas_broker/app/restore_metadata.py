"""`barnabas restore-metadata`: restores topics that the metadata has lost, from the logs of the brokers.

Start all brokers first, because each broker reports its logs to the metadata store. The command prints the reason for
each topic that it cannot restore. The configs of restored topics are lost: set them afterwards; until then no record of
these topics expires.
"""

from collections.abc import Iterator, Sequence

from barnabas_broker.app.main import EXIT_FAILED
from barnabas_broker.app.store_command import DRY_RUN, OpenMetadata, parser_of_change, print_table, run
from barnabas_broker.metadata.controller.decisions.create_topics import NotRestored, Restored, restored_topics
from barnabas_broker.metadata.documents import topic_key
from barnabas_broker.metadata.model import NO_LEADER
from barnabas_core import kafka_uuid

HEADER = ("TOPIC", "PARTITION", "LEADER", "REPLICAS", "IN SYNC", "LOGS END AT")


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code: 0, or 1 if a topic could not be restored."""
    parser = parser_of_change("restore-metadata", __doc__)
    parser.add_argument("--topic", action="append", help="restore only this topic; the option can be repeated")
    parser.add_argument(
        "--accept-loss",
        action="store_true",
        help="also restore topics with partitions that have no log on any broker; these partitions begin empty",
    )
    options = parser.parse_args(arguments)

    async def work(metadata: OpenMetadata) -> int:
        decided = restored_topics(metadata.image, metadata.config, accepts_loss=options.accept_loss)
        wanted = [each for each in decided if not options.topic or _name(each) in options.topic]
        return await _restore(metadata, wanted, executes=options.execute)

    return run(options, work)


def _name(decided: Restored | NotRestored) -> str:
    return decided.name if isinstance(decided, NotRestored) else decided.document.name


async def _restore(metadata: OpenMetadata, decided: Sequence[Restored | NotRestored], *, executes: bool) -> int:
    refused = [each for each in decided if isinstance(each, NotRestored)]
    restored = [each for each in decided if isinstance(each, Restored)]
    print(f"Brokers that have reported their logs: {', '.join(map(str, sorted(metadata.image.brokers))) or 'none'}")
    if restored:
        print_table([HEADER, *(row for each in restored for row in _rows(each))])
    for each in restored:
        print(f"{each.document.name}: configs {_configs(each)}")
    for stays in refused:
        print(f"The topic {stays.name} ({kafka_uuid.to_text(stays.topic_id)}) is not restored: {stays.why}")
    if not restored:
        print("There is no topic to restore." if not refused else "No topic can be restored.")
        return EXIT_FAILED if refused else 0
    if not executes:
        print(DRY_RUN)
        return 0
    failed = [each for each in restored if not await _write(metadata, each)]
    for each in failed:
        print(f"The topic {each.document.name} was changed during the command: run the command again")
    print(f"Restored {len(restored) - len(failed)} topics.")
    return EXIT_FAILED if failed or refused else 0


async def _write(metadata: OpenMetadata, restored: Restored) -> bool:
    return await metadata.write({topic_key(restored.document.name): restored.document})


def _rows(restored: Restored) -> Iterator[tuple[object, ...]]:
    for number, ends in restored.ends.items():
        state = restored.document.partitions[number]
        leader = "none" if state.leader == NO_LEADER else state.leader
        at = (
            " ".join(f"{broker}:{end.offset}" for broker, end in sorted(ends.items()))
            or "no broker has a log, so the partition begins empty"
        )
        yield restored.document.name, number, leader, _ids(state.replicas), _ids(state.isr), at


def _ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))


def _configs(restored: Restored) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(restored.document.configs.items())) or "none"
