"""The end of a broker's past incarnation, if an image receives several of its states together."""

from collections.abc import AsyncIterator
from uuid import UUID

import msgspec
import pytest
from image_samples import a_topic, changes

from barnabas_broker.metadata.documents import AnyDocument, broker_key, encode, topic_key
from barnabas_broker.metadata.image import image_feed
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.membership.log_ends import PastIncarnations
from barnabas_broker.metadata.model import BrokerRegistration
from barnabas_broker.metadata.store.metadata_store import Changes, Document, HistoryCompacted, Listing

KEY, TOPIC = broker_key(1), a_topic("flights", 7)
FENCED = BrokerRegistration(1, UUID(int=1), (), fenced=True, broker_epoch=1)
LATER = msgspec.structs.replace(FENCED, incarnation_id=UUID(int=2), broker_epoch=2)
ALIVE_LATER = msgspec.structs.replace(LATER, fenced=False)


@pytest.fixture
def image() -> MetadataImage:
    """Return an image: the broker is fenced at revision 1, and the partition is written at revision 2."""
    image = MetadataImage()
    image.apply_changes(changes((KEY, FENCED), (topic_key(TOPIC.name), TOPIC)))
    return image


@pytest.fixture
def past(image: MetadataImage) -> PastIncarnations:
    past = PastIncarnations(image)
    past.start()
    return past


def at_once(*documents: AnyDocument) -> Changes:
    return changes(*((KEY, document) for document in documents), begin=3)


def test_an_incarnation_fenced_before_the_last_write_of_a_partition_is_past(
    image: MetadataImage, past: PastIncarnations
) -> None:
    image.apply_changes(at_once(LATER))
    assert past.is_past(1, TOPIC, 0)


def test_an_incarnation_alive_within_a_batch_is_not_past_before_the_next_write(
    image: MetadataImage, past: PastIncarnations
) -> None:
    """A broker with an older image still sees it alive, and could add it to the ISR of the unchanged partition."""
    image.apply_changes(at_once(LATER, ALIVE_LATER, LATER))
    assert not past.is_past(1, TOPIC, 0)
    image.apply_changes(changes((topic_key(TOPIC.name), TOPIC), begin=6))
    assert past.is_past(1, TOPIC, 0)


class Forgetful:
    """A store without history: its listing contains only the last states."""

    def __init__(self, listing: Listing) -> None:
        self._listing = listing

    async def listing(self) -> Listing:
        return self._listing

    async def watch(self, from_revision: int) -> AsyncIterator[Changes]:
        if from_revision < self._listing.revision:
            raise HistoryCompacted("too long")
        for changes_of_now in tuple[Changes, ...]():
            yield changes_of_now


async def test_an_incarnation_is_not_past_if_a_listing_may_hide_that_it_lived(
    image: MetadataImage, past: PastIncarnations
) -> None:
    documents = [Document(KEY, encode(LATER), 5), Document(topic_key(TOPIC.name), encode(TOPIC), 2)]
    feed = image_feed.ImageFeed(image, Forgetful(Listing(9, documents)), None)  # type: ignore[arg-type]
    await feed.follow()
    assert image.revision == 9
    assert not past.is_past(1, TOPIC, 0)
