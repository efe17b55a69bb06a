"""An ACL that cannot be read may be a denial: only super users are allowed anything until it is written again."""

import pytest

from barnabas_broker.app.node import make_authorizer
from barnabas_broker.metadata.documents import encode
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.store.metadata_store import Document, Listing
from barnabas_broker.security.authorizer import Authorizer, changing, key_of
from barnabas_core.acls import AclEntry, AclOperation, AclPattern, PatternType, Permission, ResourceType
from barnabas_core.config.broker_config import parse_broker_config
from harness.manual_clock import ManualClock

TOPIC = ResourceType.TOPIC
EVERYTHING = AclPattern(TOPIC, "*", PatternType.LITERAL)
SECRET = AclPattern(TOPIC, "secret", PatternType.LITERAL)
SETTINGS = {
    "node.id": "1",
    "log.dirs": "/data",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}


def stored(pattern: AclPattern, permission: Permission) -> Document:
    document = changing(pattern, added=[AclEntry("User:*", "*", AclOperation.ALL, permission)])(None)
    return Document(key_of(pattern), encode(document), 1)


@pytest.fixture
def image() -> MetadataImage:
    return MetadataImage()


@pytest.fixture
def authorizer(image: MetadataImage) -> Authorizer:
    made = make_authorizer(parse_broker_config(SETTINGS), image, ManualClock())
    assert made is not None
    return made


def may_read(authorizer: Authorizer, user: str, topic: str) -> bool:
    return authorizer.rights(f"User:{user}", "10.0.0.1").may(AclOperation.READ, TOPIC, topic)


def test_only_super_users_are_allowed_anything_while_a_denial_cannot_be_read(
    image: MetadataImage, authorizer: Authorizer
) -> None:
    allowed, denied = stored(EVERYTHING, Permission.ALLOW), stored(SECRET, Permission.DENY)
    image.apply_listing(Listing(1, [allowed, denied._replace(value=denied.value[:-5])]))
    assert not may_read(authorizer, "alice", "secret")
    assert not may_read(authorizer, "alice", "open")
    assert may_read(authorizer, "admin", "secret")
    image.apply_listing(Listing(2, [allowed, denied._replace(version=2)]))
    assert not may_read(authorizer, "alice", "secret")
    assert may_read(authorizer, "alice", "open")


def test_a_denial_stays_in_force_if_it_becomes_unreadable(image: MetadataImage, authorizer: Authorizer) -> None:
    allowed, denied = stored(EVERYTHING, Permission.ALLOW), stored(SECRET, Permission.DENY)
    image.apply_listing(Listing(1, [allowed, denied]))
    image.apply_listing(Listing(2, [allowed, denied._replace(value=b"{", version=2)]))
    assert not may_read(authorizer, "alice", "secret")
    assert may_read(authorizer, "alice", "open")
