"""Fetch with an authorizer: refuses topics that the consumer may not read, and followers without ClusterAction."""

from barnabas_broker.handlers import replica_fetch
from barnabas_broker.handlers.channel import Channel, GiveUp
from barnabas_broker.handlers.client_rights import rights_of
from barnabas_broker.handlers.fetch import ConsumerFetch, unauthorized
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.handlers.topic_rights import lacking
from barnabas_broker.replication.purgatory import WaitList
from barnabas_broker.wire.fetch import FetchRequest, FetchTopic
from barnabas_core.acls import AclOperation, ResourceType
from barnabas_core.loop_turns import FETCHED_PARTITIONS, slices


def answer_follower(
    environment: HandlerEnvironment, channel: Channel, version: int, correlation_id: int, request: FetchRequest
) -> None:
    """Answer a follower that has ClusterAction on the cluster, and refuse any other follower."""
    if rights_of(environment, channel.client).may(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER):
        replica_fetch.handle(environment, channel, version, correlation_id, request)
    else:
        replica_fetch.refuse(channel, version, correlation_id)


class AuthorizedFetch(ConsumerFetch):
    """A ConsumerFetch that checks Read on each topic when the fetch begins, and again after each wait."""

    __slots__ = ()

    def begin(self) -> GiveUp | None:
        """Refuse the topics that the client may not read, and begin the fetch of all others.

        Rights to very many topics are checked in slices. A topic without partitions needs no right.
        """
        environment, client = self._environment, self._channel.client
        assert environment.authorizer is not None, "AuthorizedFetch requires an authorizer"
        rights = environment.authorizer.rights(client.principal, client.host)
        for topic in self._request.topics:
            if (topic.topic_id or topic.name) not in rights.readable:
                asked = self._asked()
                if len(asked) <= FETCHED_PARTITIONS:
                    self.refuse(lacking(environment, rights, AclOperation.READ, asked))
                break
        return ConsumerFetch.begin(self)

    def _asked(self) -> list[FetchTopic]:
        return [topic for topic in self._request.topics if topic.partitions]

    async def _refuse_in_slices(self) -> None:
        asked, refused = self._asked(), set[str | bytes | None]()
        if len(asked) <= FETCHED_PARTITIONS:
            return
        for some in slices(asked, lambda _: 1, FETCHED_PARTITIONS, FETCHED_PARTITIONS):
            await self._environment.fetches.next_turn()
            rights = rights_of(self._environment, self._channel.client)
            refused |= lacking(self._environment, rights, AclOperation.READ, some)
        self.refuse(refused)

    def try_complete(self, changed: WaitList) -> bool:
        """Check the client's rights again, and read the partition that has changed.

        If the response now has at least min_bytes of records, or an error, send it and return True. Otherwise return
        False.
        """
        self._take_back()
        return super().try_complete(changed)

    def expire(self) -> None:
        """Check the client's rights again, and respond with the records read so far, because max_wait_ms is over."""
        self._take_back()
        super().expire()

    def _take_back(self) -> None:
        """Refuse topics for which the client has lost Read since the fetch began."""
        environment, topics = self._environment, self._request.topics
        rights = rights_of(environment, self._channel.client)
        if all((topic.topic_id or topic.name) in rights.readable for topic in topics):
            return
        refused = lacking(environment, rights, AclOperation.READ, topics)
        self.refuse(refused)
        for topic, results in self._results:
            if (topic.topic_id or topic.name) in refused:
                results[:] = [unauthorized(each.partition) for each in results]
