"""The rights of the client of a request."""

from barnabas_broker.handlers.channel import Client
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.security.acls.authorizer import EVERY_RIGHT, Rights
from barnabas_core.acls import AclOperation, ResourceType


def rights_of(environment: HandlerEnvironment, client: Client) -> Rights:
    """Return the rights of a client; without an authorizer, every client has every right."""
    authorizer = environment.authorizer
    return EVERY_RIGHT if authorizer is None else authorizer.rights(client.principal, client.host)


def cluster_operations(environment: HandlerEnvironment, client: Client) -> set[int]:
    """Return the codes of the cluster operations that the client may perform; none without Describe on the cluster."""
    rights = rights_of(environment, client)
    if not rights.may_see(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        return set()
    return rights.operations(ResourceType.CLUSTER)
