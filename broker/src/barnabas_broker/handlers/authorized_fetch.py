"""Fetch under an authorizer: topics that a consumer may not read are refused; a follower has to be a broker."""

from barnabas_broker.handlers import replica_fetch
from barnabas_broker.handlers.channel import Channel, GiveUp
from barnabas_broker.handlers.client_rights import rights_of
from barnabas_broker.handlers.fetch import ConsumerFetch
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.handlers.topic_rights import lacking
from barnabas_broker.wire.fetch import FetchRequest
from barnabas_core.acls import AclOperation, ResourceType


def answer_follower(
    environment: HandlerEnvironment, channel: Channel, version: int, correlation_id: int, request: FetchRequest
) -> None:
    """Answer a broker that follows, and refuse everybody else."""
    if rights_of(environment, channel.client).may(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER):
        replica_fetch.handle(environment, channel, version, correlation_id, request)
    else:
        replica_fetch.refuse(channel, version, correlation_id)


class AuthorizedFetch(ConsumerFetch):
    """Asks for the right to each topic when the fetch begins."""

    __slots__ = ()

    def begin(self) -> GiveUp | None:
        """Answer in this turn what is small."""
        environment, client = self._environment, self._channel.client
        assert environment.authorizer is not None, "this fetch is for brokers with an authorizer"
        rights = environment.authorizer.rights(client.principal, client.host)
        for topic in self._request.topics:
            if (topic.topic_id or topic.name) not in rights.readable:
                self.refuse(lacking(environment, rights, AclOperation.READ, self._request.topics))
                break
        return ConsumerFetch.begin(self)
