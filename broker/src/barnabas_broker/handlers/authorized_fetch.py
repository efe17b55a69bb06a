"""Fetch under an authorizer: topics that a consumer may not read are refused; a follower has to be a broker."""

from barnabas_broker.handlers import replica_fetch
from barnabas_broker.handlers.channel import Channel, GiveUp
from barnabas_broker.handlers.client_rights import rights_of
from barnabas_broker.handlers.fetch import ConsumerFetch, unauthorized
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.handlers.topic_rights import lacking
from barnabas_broker.replication.purgatory import WaitList
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
    """Asks for the right to each topic when the fetch begins, and again before an answer that has waited."""

    __slots__ = ()

    def begin(self) -> GiveUp | None:
        """Answer a small request in this turn."""
        environment, client = self._environment, self._channel.client
        assert environment.authorizer is not None, "this fetch is for brokers with an authorizer"
        rights = environment.authorizer.rights(client.principal, client.host)
        for topic in self._request.topics:
            if (topic.topic_id or topic.name) not in rights.readable:
                self.refuse(lacking(environment, rights, AclOperation.READ, self._request.topics))
                break
        return ConsumerFetch.begin(self)

    def try_complete(self, changed: WaitList) -> bool:
        """Read the partition of a change again; True if the fetch is complete. The purgatory calls it."""
        self._take_back()
        return super().try_complete(changed)

    def expire(self) -> None:
        """Answer with the records at hand. The purgatory calls it when the time is up."""
        self._take_back()
        super().expire()

    def _take_back(self) -> None:
        """Refuse topics that the client might have read when it asked, which may be minutes ago."""
        environment, topics = self._environment, self._request.topics
        rights = rights_of(environment, self._channel.client)
        if all((topic.topic_id or topic.name) in rights.readable for topic in topics):
            return
        refused = lacking(environment, rights, AclOperation.READ, topics)
        self.refuse(refused)
        for topic, results in self._results:
            if (topic.topic_id or topic.name) in refused:
                results[:] = [unauthorized(each.partition) for each in results]
