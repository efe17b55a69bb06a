"""`barnabas forget-topic`: deletes the logs of a topic that is missing in the metadata, on all brokers.

The command records in the metadata that the topic was deleted. Brokers that are down delete their logs when they start.
"""

from collections.abc import Sequence

from barnabas_broker.app.main import EXIT_FAILED
from barnabas_broker.app.store_command import DRY_RUN, OpenMetadata, parser_of_change, print_table, run
from barnabas_broker.metadata.documents import AnyDocument, tombstone_key, topic_key
from barnabas_broker.metadata.membership.log_ends import StrayTopic, stray_topics
from barnabas_broker.metadata.model import TombstoneDocument
from barnabas_core import kafka_uuid


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code: 0, or 1 if the topic cannot be deleted or several topics have the name."""
    parser = parser_of_change("forget-topic", __doc__)
    parser.add_argument(
        "topic", metavar="NAME|ID", help="the name of the topic, or its topic id if several topics had the same name"
    )
    options = parser.parse_args(arguments)

    async def work(metadata: OpenMetadata) -> int:
        return await _forget(metadata, options.topic, executes=options.execute)

    return run(options, work)


async def _forget(metadata: OpenMetadata, wanted: str, *, executes: bool) -> int:
    found = [each for each in stray_topics(metadata.image) if wanted in (each.name, kafka_uuid.to_text(each.topic_id))]
    if found:
        print_table([("TOPIC", "TOPIC ID", "BROKERS"), *map(_row, found)])
    if len(found) > 1:
        print(f"Several topics had the name {wanted}: run the command with a topic id")
        return EXIT_FAILED
    documents = documents_that_forget(metadata, wanted, found)
    if not documents:
        is_there = wanted in metadata.image.topics
        why = (
            "the topic is in the metadata; delete it like any other topic"
            if is_there
            else "the topic is unknown, because no broker has reported a log of it"
        )
        print(f"{wanted}: {why}")
        return EXIT_FAILED
    if not executes:
        print(DRY_RUN)
        return 0
    if not await metadata.write(documents):
        print(f"The topic {wanted} was changed during the command: run the command again")
        return EXIT_FAILED
    print(f"The topic {wanted} is deleted from the metadata: the brokers now delete its logs")
    return 0


def _row(topic: StrayTopic) -> tuple[object, ...]:
    return topic.name, kafka_uuid.to_text(topic.topic_id), ",".join(map(str, topic.brokers))


def documents_that_forget(
    metadata: OpenMetadata, wanted: str, found: Sequence[StrayTopic]
) -> dict[str, AnyDocument | None]:
    """Return what to write to the metadata store by key: tombstones of the topic, and None for a key to delete.

    The key of the topic is deleted if the metadata under the key is unreadable.
    """
    image, now_ms = metadata.image, metadata.now_ms
    heads = [head for head in image.incomplete.values() if wanted in (head.name, kafka_uuid.to_text(head.topic_id))]
    topics = {(each.name, each.topic_id) for each in found} | {(each.name, each.topic_id) for each in heads}
    documents: dict[str, AnyDocument | None] = {
        tombstone_key(topic_id): TombstoneDocument(name, topic_id, now_ms) for name, topic_id in topics
    }
    unreadable = {topic_key(name) for name in (wanted, *(name for name, _ in topics))} & image.unreadable.keys()
    return documents | dict.fromkeys(unreadable)
