"""`allow.everyone.if.no.acl.found` allows topics that have no ACL of any user, and no others."""

import pytest

from barnabas_broker.app.node import make_authorizer
from barnabas_broker.metadata.documents import encode
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.store.metadata_store import Document, Listing
from barnabas_broker.security.authorizer import changing, key_of
from barnabas_core.acls import AclEntry, AclOperation, AclPattern, PatternType, Permission, ResourceType
from barnabas_core.config.broker_config import parse_broker_config
from harness.manual_clock import ManualClock

TOPIC = ResourceType.TOPIC
SECRET = AclPattern(TOPIC, "secret", PatternType.LITERAL)
SETTINGS = {
    "node.id": "1",
    "log.dirs": "/data",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
}


@pytest.mark.parametrize("is_allowed", [True, False])
def test_a_topic_without_acls_is_open_to_everyone_only_if_the_setting_allows_it(is_allowed: bool) -> None:
    image = MetadataImage()
    setting = {"allow.everyone.if.no.acl.found": str(is_allowed).lower()}
    authorizer = make_authorizer(parse_broker_config(SETTINGS | setting), image, ManualClock())
    assert authorizer is not None
    of_bob = [AclEntry("User:bob", "*", AclOperation.WRITE, Permission.ALLOW)]
    image.apply_listing(Listing(1, [Document(key_of(SECRET), encode(changing(SECRET, added=of_bob)(None)), 1)]))
    alice = authorizer.rights("User:alice", "10.0.0.1")
    assert alice.may(AclOperation.READ, TOPIC, "open") is is_allowed
    assert not alice.may(AclOperation.READ, TOPIC, "secret"), "the topic has an ACL of another user"
