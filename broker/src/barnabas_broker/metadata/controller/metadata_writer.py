"""The changes of metadata that clients and brokers can request from any broker.

A pure function of `decisions` decides each change, and a compare-and-set writes it. The request is answered once this
broker's image holds the change, so that a client sees its own changes in later requests to this broker.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Final
from uuid import UUID

import msgspec

from barnabas_broker.metadata.controller.decisions.alter_configs import (
    ClusterView,
    ConfigChange,
    ConfigResource,
    ConfigResourceType,
    NewPartitions,
    decide_alter_broker,
    decide_alter_group,
    decide_alter_topic,
    decide_create_partitions,
    decide_delete_topic,
    replace_all,
    view_cluster,
)
from barnabas_broker.metadata.controller.decisions.cluster_settings import (
    NO_USERS,
    FeatureUpdate,
    QuotaChange,
    QuotaEntity,
    decide_client_quotas,
    decide_update_features,
)
from barnabas_broker.metadata.controller.decisions.create_topics import NewTopic, automatic_topic, decide_create_topics
from barnabas_broker.metadata.controller.decisions.fencing import check_unregistration, remove_fenced
from barnabas_broker.metadata.controller.deletions import (
    Decide,
    Item,
    Planned,
    Transitions,
    delete_documents,
    each,
    tombstone_of,
)
from barnabas_broker.metadata.controller.partition_changes import PartitionStateWriter, failures_of
from barnabas_broker.metadata.documents import (
    CLIENT_QUOTAS_KEY,
    FEATURES_KEY,
    PRODUCER_IDS_KEY,
    AnyDocument,
    broker_configs_key,
    broker_key,
    decode_if_readable,
    encode,
    group_configs_key,
    tombstone_key,
    topic_key,
)
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.membership.log_ends import refusals
from barnabas_broker.metadata.membership.membership import BROKER_LEASES
from barnabas_broker.metadata.model import (
    AclsDocument,
    ConfigDocument,
    FeaturesDocument,
    GroupConfigDocument,
    ProducerIdsDocument,
    TopicDocument,
)
from barnabas_broker.metadata.store.metadata_store import ABSENT, MetadataStore, StoreUnavailable, VersionConflict
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.config.definitions import LONG_MAX
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import OUTCOMES, in_turns

BLOCK_SIZE: Final = 1000


async def allocate_block(store: MetadataStore, first_free: int, now_ms: int) -> range:
    """Return the next block of ids, which no other caller gets. Raises StoreUnavailable if the store does not answer.

    The block is written to the store before it is returned. All ids are at least `first_free`, because the store
    may have been restored from an older backup. If the next id in the store is lost or unreadable, the next id is the
    wall-clock time in milliseconds, which exceeds all earlier ids, because no cluster allocates an id per millisecond
    on average.
    """
    while True:
        found = await store.get(PRODUCER_IDS_KEY)
        document = None if found is None else decode_if_readable(PRODUCER_IDS_KEY, found.value)
        known = document if isinstance(document, ProducerIdsDocument) else ProducerIdsDocument(now_ms)
        first = max(known.next_producer_id, first_free)
        assert first <= LONG_MAX - BLOCK_SIZE, "all 2^63 producer ids are used up"
        after = msgspec.structs.replace(known, next_producer_id=first + BLOCK_SIZE)
        try:
            await store.put(PRODUCER_IDS_KEY, encode(after), ABSENT if found is None else found.version)
        except VersionConflict:
            continue
        return range(first, first + BLOCK_SIZE)


log = logging.getLogger(__name__)

UNREGISTRATION_MS: Final = 5_000
"""The duration in ms of the lease that keeps a broker from starting while another broker unregisters it."""

ACLS_OF_PATTERN_MAX: Final = 5_000
"""The maximum number of ACLs of one resource pattern, because all of them must fit into one Kubernetes object."""
ACL_PATTERNS_MAX: Final = 20_000
"""The maximum number of resource patterns with ACLs, because every broker holds all ACLs in memory."""

CONFIGURED_GROUPS_MAX: Final = 20_000
"""The maximum number of groups with configs of their own, because every broker holds all of them in memory."""

AclsChange = Callable[[AclsDocument | None], AclsDocument]
ChangesOf = Callable[[ConfigResource, Mapping[str, str]], Sequence[ConfigChange]]


class MetadataWriter(PartitionStateWriter):
    """The writer of all metadata changes that are requested from this broker.

    `config` returns the current settings of this broker. `random` places replicas and generates topic ids.
    """

    def __init__(
        self,
        broker_id: int,
        store: MetadataStore,
        image: MetadataImage,
        config: Callable[[], BrokerConfig],
        random: Random,
        now_ms: Callable[[], int],
    ) -> None:
        super().__init__(broker_id, image, Transitions(store, image), config)
        self._store = store
        self._config = config
        self._random = random
        self._now_ms = now_ms

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> dict[str, TopicDocument | ApiError]:
        """Create topics; return each topic, or the error, by name. With `validate_only` nothing is written."""
        by_name: dict[str, list[NewTopic]] = {}
        async for topic in in_turns(topics, OUTCOMES):
            by_name.setdefault(topic.name, []).append(topic)
        created: dict[str, TopicDocument] = {}

        def decide(names: Sequence[str]) -> dict[str, Planned | ApiError]:
            wanted = [topic for name in names for topic in by_name[name]]
            view = self._view()
            if validate_only:
                # A validation writes nothing, so add the topics that earlier calls of `decide` would have created.
                view = msgspec.structs.replace(view, topics={**view.topics, **created})
            new = decide_create_topics(view, wanted, self._random) | refusals(self._image, names)
            created.update({name: topic for name, topic in new.items() if isinstance(topic, TopicDocument)})
            return {n: t if isinstance(t, ApiError) else Planned(topic_key(n), t) for n, t in new.items()}

        outcomes = await self._carry_out(list(by_name), decide, validate_only)
        return {
            name: _answer(outcome, created.get(name)) async for name, outcome in in_turns(outcomes.items(), OUTCOMES)
        }

    async def create_automatically(self, names: Iterable[str]) -> dict[str, ErrorCode]:
        """Create topics on first use; return the failures by name. A topic that exists already is no failure."""
        config = self._config()
        outcomes = await self.create_topics([automatic_topic(name, config) for name in dict.fromkeys(names)])
        failures: dict[str, ErrorCode] = {}
        for name, outcome in outcomes.items():
            if isinstance(outcome, ApiError) and outcome.code is ErrorCode.POLICY_VIOLATION:
                # The topic has lost its metadata. Clients retry until the metadata is restored.
                failures[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif isinstance(outcome, ApiError) and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                log.warning("topic %s could not be created automatically: %s", name, outcome)
                failures[name] = outcome.code
        return failures

    async def delete_topics(self, topics: Sequence[str | UUID]) -> dict[str | UUID, TopicDocument | ApiError]:
        """Delete topics, each named once; return, for each name or id, the deleted topic or the error.

        A topic counts as deleted once its tombstone is written: if this broker then fails, the controller completes the
        deletion. A topic can be deleted even if the metadata of some of its partitions is missing. A topic id is
        unknown only if it is missing in an image that is as new as the metadata store at the call, because clients take
        an unknown id for one that was deleted.
        """
        try:
            if [each async for each in in_turns(topics, OUTCOMES) if self._is_unknown_id(each)]:
                await self._image.reached(await self._store.latest_revision())
        except StoreUnavailable as error:
            message = f"the metadata store does not answer: {error}"
            return dict.fromkeys(topics, ApiError(ErrorCode.REQUEST_TIMED_OUT, message))
        found: dict[str | UUID, TopicDocument] = {}

        def decide(topic: str | UUID) -> Planned:
            view, incomplete = self._view(), self._image.incomplete
            names = {head.topic_id: name for name, head in incomplete.items()}
            whole = msgspec.structs.replace(view, topics={**incomplete, **view.topics}) if incomplete else view
            document = decide_delete_topic(whole, topic, lambda each: self._image.topic_name(each) or names.get(each))
            found[topic] = document
            return Planned(tombstone_key(document.topic_id), tombstone_of(document, self._now_ms()))

        outcomes = await self._carry_out(topics, each(decide))
        deleting = [
            found[topic]
            async for topic, outcome in in_turns(outcomes.items(), OUTCOMES)
            if isinstance(outcome, Planned)
        ]
        gone = await delete_documents({each.name: each for each in deleting}, self._transitions, self._image)
        return {
            topic: outcome if isinstance(outcome, ApiError) else _answer(gone.get(found[topic].name), found[topic])
            async for topic, outcome in in_turns(outcomes.items(), OUTCOMES)
        }

    def _is_unknown_id(self, topic: str | UUID) -> bool:
        return isinstance(topic, UUID) and self._image.topic_name(topic) is None

    async def create_partitions(
        self, requests: Sequence[NewPartitions], *, validate_only: bool = False
    ) -> dict[str, ApiError | None]:
        """Create partitions; return, for each topic name, the error, or None if the partitions were created."""
        by_name = {request.name: request async for request in in_turns(requests, OUTCOMES)}
        times = Counter([request.name async for request in in_turns(requests, OUTCOMES)])

        def decide(name: str) -> Planned:
            if times[name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Duplicate topic name: {name}")
            return Planned(topic_key(name), decide_create_partitions(self._view(), by_name[name]))

        return await failures_of(await self._carry_out(list(by_name), each(decide), validate_only))

    async def alter_configs(
        self, changes: Mapping[ConfigResource, Sequence[ConfigChange]], *, validate_only: bool = False
    ) -> dict[ConfigResource, ApiError | None]:
        """Change single settings (IncrementalAlterConfigs); return, for each resource, the error or None."""
        return await self._alter(list(changes), lambda resource, _: changes[resource], validate_only)

    async def replace_configs(
        self, configs: Mapping[ConfigResource, Mapping[str, str | None]], *, validate_only: bool = False
    ) -> dict[ConfigResource, ApiError | None]:
        """Replace all settings of resources (AlterConfigs); return, for each resource, the error or None."""
        return await self._alter(
            list(configs), lambda resource, current: replace_all(configs[resource], current), validate_only
        )

    async def alter_client_quotas(
        self, changes: Mapping[QuotaEntity, Sequence[QuotaChange]], *, validate_only: bool = False
    ) -> dict[QuotaEntity, ApiError]:
        """Change quotas (AlterClientQuotas); return an error for each entity whose quotas were not changed."""
        failures: dict[QuotaEntity, ApiError] = {}

        def decide(key: str) -> Planned:
            failures.clear()
            document, refused = decide_client_quotas(self._image.document(key), changes)
            failures.update(refused)
            return Planned(key, document)

        outcome = (await self._carry_out([CLIENT_QUOTAS_KEY], each(decide), validate_only))[CLIENT_QUOTAS_KEY]
        return dict.fromkeys(changes, outcome) if isinstance(outcome, ApiError) else failures

    async def update_features(
        self,
        updates: Sequence[FeatureUpdate],
        users: Mapping[str, Sequence[str]] = NO_USERS,
        *,
        validate_only: bool = False,
    ) -> None:
        """Finalize levels of features. Raises ApiError if one of the updates is refused; then no level changes.

        `users` has what uses the features that are lowered.
        """

        def decide(key: str) -> Planned:
            registered = [*self._image.brokers.values()]
            topics = (*self._image.topics.values(), *self._image.incomplete.values())
            split = [topic.name for topic in topics if topic.parts]
            levels = decide_update_features(self._image.features, updates, registered, split, users)
            known = self._image.document(key) or FeaturesDocument(levels)
            return Planned(key, msgspec.structs.replace(known, levels=levels))

        outcome = (await self._carry_out([FEATURES_KEY], each(decide), validate_only))[FEATURES_KEY]
        if isinstance(outcome, ApiError):
            raise outcome

    async def unregister_broker(self, broker_id: int) -> None:
        """Unregister a broker that has stopped for good. If the broker is ever started again, it registers again.

        This process holds the lease of the unregistered broker meanwhile, so that the unregistered broker cannot start
        at the same time. Raises ApiError if the broker cannot be unregistered.
        """

        def decide(broker: int) -> Planned:
            registration = self._image.brokers.get(broker)
            check_unregistration(broker, registration, self._image.topics.values())
            assert registration is not None, "it was checked"
            marked = msgspec.structs.replace(registration, is_unregistered=True)
            return Planned(broker_key(broker), None if registration.is_unregistered else marked)

        decide(broker_id)
        holder = f"unregistration by broker {self._broker_id}"
        try:
            lease = await self._store.acquire_lease(f"{BROKER_LEASES}{broker_id}", holder, UNREGISTRATION_MS)
            if lease is None:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    f"broker {broker_id} cannot be unregistered, because the broker is starting or its lease has not "
                    "expired yet; try again later",
                )
            outcome = await self._marked_and_gone(broker_id, decide)
            await self._store.release_lease(lease)
        except StoreUnavailable as error:
            message = f"the metadata store does not answer: {error}"
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, message) from error
        if isinstance(outcome, ApiError):
            raise outcome

    async def _marked_and_gone(self, broker_id: int, decide: Callable[[int], Planned]) -> Planned | ApiError:
        """Mark a registration as unregistered, and then delete it.

        Without the mark, brokers would take the deletion for a loss, and write the registration again.
        """
        outcome: Planned | ApiError
        for _ in range(2):
            outcome = (await self._transitions.carry_out([broker_id], each(decide)))[broker_id]
            if isinstance(outcome, ApiError) or outcome.document is None:
                break
        return outcome

    async def change_acls(self, changes: Mapping[str, AclsChange]) -> Mapping[str, ApiError | None]:
        """Change the ACLs of resource patterns, and delete the patterns that have no ACLs left.

        Return the error, or None, for the key of each pattern.
        """

        def decide(key: str) -> Planned:
            known = self._image.document(key)
            changed = changes[key](known if isinstance(known, AclsDocument) else None)
            if len(changed.acls) > ACLS_OF_PATTERN_MAX:
                message = (
                    f"there would be {len(changed.acls)} ACLs of {changed.name}, but one resource pattern can have "
                    f"at most {ACLS_OF_PATTERN_MAX}"
                )
                raise ApiError(ErrorCode.INVALID_REQUEST, message)
            return Planned(key, changed)

        new = [key for key in changes if key not in self._image.acls]
        beyond = set(new[max(0, ACL_PATTERNS_MAX - len(self._image.acls)) :])
        outcomes = await self._transitions.carry_out([key for key in changes if key not in beyond], each(decide))
        await self._delete_emptied(
            key for key, outcome in outcomes.items() if isinstance(outcome, Planned) and _is_empty(outcome.document)
        )
        message = f"at most {ACL_PATTERNS_MAX} resource patterns can have ACLs: use prefixed patterns, or delete ACLs"
        return {**await failures_of(outcomes), **dict.fromkeys(beyond, ApiError(ErrorCode.INVALID_REQUEST, message))}

    async def allocate_producer_ids(self) -> range:
        """Allocate a block of unused producer ids. Raises ApiError if the metadata store does not answer."""
        try:
            return await allocate_block(self._store, self._image.next_producer_id, self._now_ms())
        except StoreUnavailable as error:
            message = f"the metadata store does not answer: {error}"
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, message) from error

    async def _alter(
        self, resources: Sequence[ConfigResource], changes_of: ChangesOf, validate_only: bool
    ) -> dict[ConfigResource, ApiError | None]:
        deciders = {
            ConfigResourceType.TOPIC: self._decide_topic_configs,
            ConfigResourceType.BROKER: self._decide_broker_configs,
            ConfigResourceType.GROUP: self._decide_group_configs,
        }

        def decide(resource: ConfigResource) -> Planned:
            decider = deciders.get(resource.type)
            if decider is None:
                message = f"{resource.type.name} {resource.name} has no configs that can be changed."
                raise ApiError(ErrorCode.INVALID_REQUEST, message)
            return decider(resource, changes_of)

        outcomes = await self._carry_out(resources, each(decide), validate_only)
        if not validate_only:
            of_groups = [
                outcome.key
                async for outcome in in_turns(outcomes.values(), OUTCOMES)
                if isinstance(outcome, Planned) and isinstance(outcome.document, GroupConfigDocument)
            ]
            await self._delete_emptied(of_groups)
        return await failures_of(outcomes)

    async def _delete_emptied(self, keys: Iterable[str]) -> None:
        """Delete those documents that have neither ACLs nor configs of a group left."""

        def decide(emptied: Sequence[str]) -> dict[str, Planned | ApiError]:
            return {key: Planned(key, None) for key in emptied if _is_empty(self._image.document(key))}

        await self._transitions.carry_out(list(keys), decide)

    def _decide_topic_configs(self, resource: ConfigResource, changes_of: ChangesOf) -> Planned:
        topic = self._image.topics.get(resource.name)
        changes = changes_of(resource, topic.configs if topic is not None else {})
        altered = decide_alter_topic(self._view(), resource.name, changes)
        rules = self.partitions.rules(altered)
        # The ELR is computed again, because the change may set min.insync.replicas, on which the ELR depends.
        partitions = tuple(remove_fenced(state, rules(n)) for n, state in enumerate(altered.partitions))
        epoch = altered.configs_epoch + 1
        changed = msgspec.structs.replace(altered, partitions=partitions, configs_epoch=epoch)
        return Planned(topic_key(resource.name), changed)

    def _decide_broker_configs(self, resource: ConfigResource, changes_of: ChangesOf) -> Planned:
        changes = changes_of(resource, self._image.configs_of_broker(resource.name))
        configs = decide_alter_broker(self._view(), resource.name, changes)
        key = broker_configs_key(resource.name)
        known = self._image.document(key) or ConfigDocument(configs)
        return Planned(key, msgspec.structs.replace(known, configs=configs))

    def _decide_group_configs(self, resource: ConfigResource, changes_of: ChangesOf) -> Planned:
        key = group_configs_key(resource.name)
        known = self._image.document(key)
        if not isinstance(known, GroupConfigDocument):
            known = GroupConfigDocument(resource.name, {})
            if len(self._image.group_configs) >= CONFIGURED_GROUPS_MAX:
                message = (
                    f"at most {CONFIGURED_GROUPS_MAX} groups can have configs: set them for all groups on the brokers"
                )
                raise ApiError(ErrorCode.INVALID_REQUEST, message)
        changes = changes_of(resource, known.configs)
        configs = decide_alter_group(self._view(), resource.name, changes, known.configs)
        return Planned(key, msgspec.structs.replace(known, configs=configs))

    async def _carry_out(
        self, items: Sequence[Item], decide: Decide[Item], validate_only: bool = False
    ) -> Mapping[Item, Planned | ApiError]:
        if validate_only:
            return await self._transitions.decided(items, decide)
        return await self._transitions.carry_out(items, decide)

    def _view(self) -> ClusterView:
        return view_cluster(self._image.topics, self._image.brokers, self._config(), self._image.broker_configs)


def _answer(outcome: Planned | ApiError | None, document: TopicDocument | None) -> TopicDocument | ApiError:
    if isinstance(outcome, ApiError):
        return outcome
    assert document is not None, "a topic that was created without an error must have metadata"
    return document


def _is_empty(document: AnyDocument | None) -> bool:
    if isinstance(document, GroupConfigDocument):
        return not document.configs
    return isinstance(document, AclsDocument) and not document.acls
