"""The construction of a broker's authorizer."""

import functools

from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.security.acls.authorizer import AclFollower, Audit, Authorizer, lacks_acls, super_users
from barnabas_core.clock import Clock
from barnabas_core.config.broker_config import BrokerConfig


def make_authorizer(config: BrokerConfig, image: MetadataImage, clock: Clock) -> Authorizer | None:
    """Make the authorizer, which follows the ACLs in the metadata image; return None without authorizer.class.name."""
    if not config.authorizer_class_name:
        return None
    users, allows = super_users(config.super_users), config.allow_everyone_if_no_acl_found
    authorizer = Authorizer(
        users, allow_if_none=allows, audit=Audit(clock), lacks_acls=functools.partial(lacks_acls, image)
    )
    AclFollower(authorizer, image).start()
    return authorizer
