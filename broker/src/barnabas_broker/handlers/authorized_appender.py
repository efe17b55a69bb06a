"""The appender of a broker with an authorizer: it refuses the batches that the client has no right to write."""

from barnabas_broker.handlers.appender import Appender
from barnabas_broker.handlers.client_rights import rights_of
from barnabas_broker.handlers.large_responses import SharedTurn
from barnabas_broker.handlers.topic_rights import AskedTopicKey, lacking
from barnabas_broker.replication.partition import Partition
from barnabas_broker.wire.produce import ProduceBatch, ProduceResult
from barnabas_core.acls import AclOperation, ResourceType
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import STEP_ELEMENTS


class AuthorizedAppender(Appender):
    """An Appender that checks Write on each topic, and on the transactional id of transactional batches."""

    def append_all(self) -> list[ProduceResult] | None:
        """Append the batches that the client may write, and return the results in order.

        If a batch or its result has to wait, return None; `late` then sends the response.
        """
        environment, client = self.environment, self.channel.client
        assert environment.authorizer is not None, "AuthorizedAppender requires an authorizer"
        rights = environment.authorizer.rights(client.principal, client.host)
        for topic in self.request.topics:
            if (topic.topic_id or topic.name) not in rights.writable:
                refused = lacking(environment, rights, AclOperation.WRITE, self.request.topics)
                return self._append_rest(refused) if refused else super().append_all()
        return super().append_all()

    def _append_rest(self, refused: frozenset[AskedTopicKey]) -> list[ProduceResult] | None:
        rest = self._refusing(refused)
        answers = Appender.append_all(rest)
        self.late = rest.late
        return answers

    async def allowed_in_turns(self, turn: SharedTurn) -> Appender:
        """Check Write on each topic, and return an appender that refuses the batches of the other topics."""
        environment, client = self.environment, self.channel.client
        refused: set[AskedTopicKey] = set()
        for first in range(0, len(self.request.topics), STEP_ELEMENTS):
            await turn.give_way()
            some = self.request.topics[first : first + STEP_ELEMENTS]
            refused |= lacking(environment, rights_of(environment, client), AclOperation.WRITE, some)
        return self._refusing(frozenset(refused)) if refused else self

    def _refusing(self, refused: frozenset[AskedTopicKey]) -> Appender:
        return _RefusingAppender(
            self.environment,
            self.channel,
            self.request,
            self.buffer,
            self.version,
            self.correlation_id,
            self.trust,
            self.now_ms,
            late=self.late,
            refused_topics=refused,
        )

    def _append_in_transaction(self, partition: Partition, batch: memoryview, place: int) -> ProduceResult | None:
        transactional_id = self.request.transactional_id or ""
        rights = rights_of(self.environment, self.channel.client)
        if not rights.may(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
            return self.refused(place, ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
        return super()._append_in_transaction(partition, batch, place)


class _RefusingAppender(AuthorizedAppender):
    refused_topics: frozenset[AskedTopicKey] = frozenset()

    def _append(self, wanted: ProduceBatch, place: int) -> ProduceResult | None:
        topic = wanted[0]
        if (topic.topic_id or topic.name) in self.refused_topics:
            return self.refused(place, ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        return super()._append(wanted, place)
