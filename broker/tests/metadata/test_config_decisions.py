"""Changes of configs and of features are accepted or refused by a view of the cluster."""

import msgspec
import pytest
from decision_samples import a_cluster, a_topic, create, registration

from barnabas_broker.metadata.controller.decisions.alter_configs import (
    ClusterView,
    ConfigChange,
    ConfigOperation,
    decide_alter_broker,
    decide_alter_topic,
    replace_all,
)
from barnabas_broker.metadata.controller.decisions.cluster_settings import (
    FeatureUpdate,
    UpgradeType,
    decide_update_features,
    lowered,
)
from barnabas_broker.metadata.controller.decisions.create_topics import NewTopic
from barnabas_broker.metadata.model import (
    ELR,
    FIRST_LEVELS,
    GROUP_VERSION,
    NEW_LEVELS,
    SHARE_VERSION,
    SUPPORTED,
    TRANSACTION_VERSION,
    BrokerRegistration,
    unsupported,
)
from barnabas_core.config import topic_configs
from barnabas_core.config.definitions import NAMED_MAX, ConfigType
from barnabas_core.config.describe import describe_broker
from barnabas_core.conventions import METADATA_LEVEL
from barnabas_core.errors import ApiError, ErrorCode

SET, DELETE, APPEND, SUBTRACT = ConfigOperation


CONFIG_CHANGES = [
    ([ConfigChange("retention.ms", SET, "7")], {"cleanup.policy": "compact", "retention.ms": "7"}),
    ([ConfigChange("cleanup.policy", DELETE, None)], {}),
    ([ConfigChange("not.there", DELETE, None)], {"cleanup.policy": "compact"}),
    ([ConfigChange("cleanup.policy", APPEND, "delete")], {"cleanup.policy": "compact,delete"}),
    ([ConfigChange("cleanup.policy", APPEND, "compact")], {"cleanup.policy": "compact"}),
    ([ConfigChange("cleanup.policy", SUBTRACT, "compact")], {"cleanup.policy": ""}),
    ([ConfigChange("cleanup.policy", SUBTRACT, "delete")], {"cleanup.policy": "compact"}),
    (
        [ConfigChange("leader.replication.throttled.replicas", APPEND, "0:1")],
        {"cleanup.policy": "compact", "leader.replication.throttled.replicas": "0:1"},
    ),
]


@pytest.mark.parametrize(("changes", "expected"), CONFIG_CHANGES)
def test_config_changes_of_a_topic_are_applied(changes: list[ConfigChange], expected: dict[str, str]) -> None:
    topic = a_topic("a", configs={"cleanup.policy": "compact"})
    assert decide_alter_topic(a_cluster(1, topic), "a", changes) == msgspec.structs.replace(topic, configs=expected)


REFUSED_CHANGES = [
    ([ConfigChange("retention.ms", SET, "x")], ErrorCode.INVALID_CONFIG, "retention.ms=x: must be an integer"),
    ([ConfigChange("nope", SET, "x")], ErrorCode.INVALID_CONFIG, "Unknown config name: nope"),
    (
        [ConfigChange("retention.ms", SET, None)],
        ErrorCode.INVALID_REQUEST,
        "Null value not supported for: retention.ms",
    ),
    ([ConfigChange("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG, "Can't APPEND to key retention.ms because"),
    ([ConfigChange("flush.ms", SET, "1")] * 2, ErrorCode.INVALID_REQUEST, "duplicate config keys: flush.ms"),
    (
        [ConfigChange("min.compaction.lag.ms", SET, "9"), ConfigChange("max.compaction.lag.ms", SET, "8")],
        ErrorCode.INVALID_CONFIG,
        "must be at most max.compaction.lag.ms=8",
    ),
]


@pytest.mark.parametrize(("changes", "code", "message"), REFUSED_CHANGES)
def test_invalid_config_changes_of_a_topic_are_refused(
    changes: list[ConfigChange], code: ErrorCode, message: str
) -> None:
    with pytest.raises(ApiError) as refused:
        decide_alter_topic(a_cluster(1, a_topic("a")), "a", changes)
    assert refused.value.code is code
    assert message in str(refused.value)


MANY = 5_000
WRONG_TOPICS = [
    NewTopic("b", 1, 1, configs={f"wrong.{number}": "1" for number in range(MANY)}),
    NewTopic("b", 1, 1, configs={f"wrong.{number}": None for number in range(MANY)}),
    NewTopic("b", 1, 1, configs={"retention.ms": "x" * 32_000}),
]


@pytest.mark.parametrize("topic", WRONG_TOPICS)
def test_the_error_about_thousands_of_wrong_configs_is_short_and_soon_found(
    topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[str] = []

    def did_you_mean(name: str, *_: object) -> str:
        compared.append(name)
        return ""

    monkeypatch.setattr(topic_configs, "did_you_mean", did_you_mean)
    with pytest.raises(ApiError) as refused:
        create(a_cluster(1), topic)
    assert len(str(refused.value)) < 2_000
    assert len(compared) <= NAMED_MAX + 1


def test_the_error_about_thousands_of_config_names_that_are_given_twice_is_short() -> None:
    changes = [ConfigChange(f"wrong.{number % MANY}", SET, "1") for number in range(2 * MANY)]
    with pytest.raises(ApiError, match="and 4990 others") as refused:
        decide_alter_topic(a_cluster(1, a_topic("a")), "a", changes)
    assert len(str(refused.value)) < 2_000


def test_a_list_that_grows_by_appends_is_no_longer_than_a_string_can_be() -> None:
    """DescribeConfigs could not report a longer one."""
    name = "leader.replication.throttled.replicas"
    topic = a_topic("a", configs={name: ",".join(f"{number}:1" for number in range(4_000))})
    appended = ",".join(f"{number}:2" for number in range(4_000))
    with pytest.raises(ApiError, match="a value has at most 32767 bytes") as refused:
        decide_alter_topic(a_cluster(1, topic), "a", [ConfigChange(name, APPEND, appended)])
    assert refused.value.code is ErrorCode.INVALID_CONFIG


def test_a_config_change_of_an_unknown_topic_is_refused() -> None:
    with pytest.raises(ApiError) as refused:
        decide_alter_topic(a_cluster(1), "a", [])
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_replacing_configs_removes_those_that_are_not_named() -> None:
    changes = replace_all({"segment.ms": "5"}, {"retention.ms": "7", "segment.ms": "4"})
    assert changes == [ConfigChange("retention.ms", DELETE, None), ConfigChange("segment.ms", SET, "5")]


def overridden(view: ClusterView, **overrides: dict[str, str]) -> ClusterView:
    """Return the view with overrides: `of_all` for all brokers, `of_0` for broker 0."""
    return msgspec.structs.replace(
        view, overrides={name.removeprefix("of_").replace("all", ""): each for name, each in overrides.items()}
    )


MAX_LAG = "log.cleaner.max.compaction.lag.ms"
REFUSED_BROKER_CHANGES = [
    ("0", "num.partitions", "3", ErrorCode.INVALID_REQUEST, "Cannot update num.partitions dynamically"),
    ("0", "min.insync.replicas", "2", ErrorCode.INVALID_CONFIG, "Broker-level min.insync.replicas cannot be altered"),
    ("0", "remote.log.storage.system.enable", "true", ErrorCode.INVALID_CONFIG, "remote.log.storage.system.enable"),
    ("0", "message.max.bytes", "-3", ErrorCode.INVALID_CONFIG, "message.max.bytes=-3: must be an integer, at least 0"),
    ("7", "message.max.bytes", "3", ErrorCode.INVALID_REQUEST, "the id '7'; the registered brokers are [0]."),
    ("x", "message.max.bytes", "3", ErrorCode.INVALID_REQUEST, "the id 'x'; the registered brokers are [0]."),
    ("00", "message.max.bytes", "3", ErrorCode.INVALID_REQUEST, "the id '00'; the registered brokers are [0]."),
    ("9" * 4301, "message.max.bytes", "3", ErrorCode.INVALID_REQUEST, "the registered brokers are [0]."),
]


@pytest.mark.parametrize(
    ("broker", "name", "value", "code", "message"), REFUSED_BROKER_CHANGES, ids=range(len(REFUSED_BROKER_CHANGES))
)
def test_invalid_config_changes_of_a_broker_are_refused(
    broker: str, name: str, value: str, code: ErrorCode, message: str
) -> None:
    with pytest.raises(ApiError) as refused:
        decide_alter_broker(a_cluster(1), broker, [ConfigChange(name, SET, value)])
    assert refused.value.code is code
    assert message in str(refused.value)


@pytest.mark.parametrize("broker", ["0", ""])
def test_a_name_that_is_no_setting_is_stored_without_effect_as_by_kafka(broker: str) -> None:
    view, change = a_cluster(1), ConfigChange("of.another.product", SET, "x")
    configs = decide_alter_broker(view, broker, [change])
    assert configs == {"of.another.product": "x"}
    usable = view.config.with_usable(*((configs, {}) if broker else ({}, configs)))
    assert [(each.name, each.value) for each in usable.ignored] == [("of.another.product", None)]
    shown = next(each for each in describe_broker(usable.config) if each.name == "of.another.product")
    assert (shown.value, shown.type, shown.sensitive, shown.read_only) == (None, ConfigType.UNKNOWN, True, True)
    assert [each.value for each in shown.synonyms] == [None]
    stored = msgspec.structs.replace(view, overrides={broker: configs})
    assert decide_alter_broker(stored, broker, [ConfigChange("of.another.product", DELETE, None)]) == {}


def test_entries_cannot_be_appended_to_a_name_that_is_no_setting() -> None:
    with pytest.raises(ApiError, match="Unknown config name: nope"):
        decide_alter_broker(a_cluster(1), "0", [ConfigChange("nope", APPEND, "x")])


def test_a_config_of_one_broker_must_not_contradict_those_of_all_brokers() -> None:
    limited = overridden(a_cluster(1), of_all={MAX_LAG: "5"})
    change = ConfigChange("log.cleaner.min.compaction.lag.ms", SET, "9")
    with pytest.raises(ApiError, match=r"must be at most log\.cleaner\.max\.compaction\.lag\.ms=5"):
        decide_alter_broker(limited, "0", [change])
    assert decide_alter_broker(a_cluster(1), "0", [change]) == {change.name: "9"}
    assert decide_alter_broker(a_cluster(1), "", [change]) == {change.name: "9"}


LAGGING = {"min.compaction.lag.ms": "60000"}


@pytest.mark.parametrize("broker", ["0", ""])
def test_a_broker_config_that_contradicts_a_topic_config_is_refused(broker: str) -> None:
    view = a_cluster(1, a_topic("flights", configs=LAGGING))
    with pytest.raises(ApiError) as refused:
        decide_alter_broker(view, broker, [ConfigChange(MAX_LAG, SET, "1000")])
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    assert "topic flights: min.compaction.lag.ms=60000: must be at most max.compaction.lag.ms=1000" in str(
        refused.value
    )


def test_a_config_of_all_brokers_must_not_contradict_topics_despite_other_overrides() -> None:
    view = msgspec.structs.replace(
        a_cluster(2, a_topic("flights", configs=LAGGING)), overrides={"1": {"log.cleaner.min.compaction.lag.ms": "5"}}
    )
    decide_alter_broker(view, "", [ConfigChange(MAX_LAG, SET, "70000")])
    with pytest.raises(ApiError, match="topic flights"):
        decide_alter_broker(view, "", [ConfigChange(MAX_LAG, SET, "1000")])


def test_an_invalid_config_of_all_brokers_is_refused_although_one_broker_overrides_it() -> None:
    view = overridden(a_cluster(2), of_0={"log.retention.ms": "5", MAX_LAG: "70000"})
    for change in (ConfigChange("log.retention.ms", SET, "-7"), ConfigChange(MAX_LAG, SET, "0")):
        with pytest.raises(ApiError, match=f"{change.name}={change.value}: must be"):
            decide_alter_broker(view, "", [change])
    with_topic = msgspec.structs.replace(view, topics=a_cluster(1, a_topic("flights", configs=LAGGING)).topics)
    with pytest.raises(ApiError, match="topic flights"):
        decide_alter_broker(with_topic, "", [ConfigChange(MAX_LAG, SET, "1000")])


def test_a_config_of_all_brokers_must_not_contradict_those_of_single_brokers() -> None:
    view = overridden(a_cluster(2), of_1={"log.cleaner.min.compaction.lag.ms": "60000"})
    with pytest.raises(ApiError, match=r"must be at most log\.cleaner\.max\.compaction\.lag\.ms=1000"):
        decide_alter_broker(view, "", [ConfigChange(MAX_LAG, SET, "1000")])


def test_stored_configs_of_an_unregistered_broker_block_no_change() -> None:
    view = overridden(a_cluster(1, a_topic("flights")), of_7={MAX_LAG: "1000"})
    change = ConfigChange("log.cleaner.min.compaction.lag.ms", SET, "5000")
    assert decide_alter_broker(view, "", [change]) == {change.name: "5000"}
    topics_own = ConfigChange("min.compaction.lag.ms", SET, "5000")
    assert decide_alter_topic(view, "flights", [topics_own]).configs == {topics_own.name: "5000"}


def test_a_topic_config_must_not_contradict_the_config_of_all_brokers() -> None:
    view = overridden(a_cluster(2, a_topic("flights")), of_0={MAX_LAG: "70000"}, of_all={MAX_LAG: "1000"})
    with pytest.raises(ApiError, match=r"must be at most max\.compaction\.lag\.ms=1000"):
        decide_alter_topic(view, "flights", [ConfigChange("min.compaction.lag.ms", SET, "60000")])


def test_a_topic_config_must_not_contradict_the_config_of_any_broker() -> None:
    view = msgspec.structs.replace(a_cluster(2, a_topic("flights")), overrides={"1": {MAX_LAG: "1000"}})
    change = [ConfigChange("min.compaction.lag.ms", SET, "60000")]
    with pytest.raises(ApiError, match=r"must be at most max\.compaction\.lag\.ms=1000"):
        decide_alter_topic(view, "flights", change)
    with pytest.raises(ApiError, match=r"must be at most max\.compaction\.lag\.ms=1000"):
        create(view, NewTopic("trains", configs=LAGGING))


def test_an_invalid_stored_config_blocks_no_other_change() -> None:
    view = a_cluster(1, a_topic("flights", configs={"of.a.newer.version": "1"}))
    changed = decide_alter_topic(view, "flights", [ConfigChange("retention.ms", SET, "5")])
    assert changed.configs == {"of.a.newer.version": "1", "retention.ms": "5"}
    view = overridden(view, of_all={"message.max.bytes": "many"})
    assert decide_alter_broker(view, "0", [ConfigChange("log.retention.ms", SET, "5")]) == {"log.retention.ms": "5"}
    assert decide_alter_broker(view, "", [ConfigChange("message.max.bytes", DELETE, None)]) == {}


def test_min_insync_replicas_of_all_brokers_can_be_set_but_not_removed() -> None:
    assert decide_alter_broker(a_cluster(1), "", [ConfigChange("min.insync.replicas", SET, "2")]) == {
        "min.insync.replicas": "2"
    }
    view = overridden(a_cluster(1), of_0={"min.insync.replicas": "3"}, of_all={"min.insync.replicas": "2"})
    with pytest.raises(ApiError, match=r"Cluster-level min\.insync\.replicas cannot be removed while ELR is enabled"):
        decide_alter_broker(view, "", [ConfigChange("min.insync.replicas", DELETE, None)])
    assert decide_alter_broker(view, "0", [ConfigChange("min.insync.replicas", DELETE, None)]) == {}


@pytest.mark.parametrize(
    "name",
    [
        "sasl.kerberos.min.time.before.relogin",
        "background.threads",
        "num.io.threads",
        "sasl.login.refresh.buffer.seconds",
    ],
)
@pytest.mark.parametrize("broker", ["0", ""])
def test_settings_without_effect_can_be_set_and_deleted_dynamically(broker: str, name: str) -> None:
    configs = decide_alter_broker(a_cluster(1), broker, [ConfigChange(name, SET, "3")])
    assert configs == {name: "3"}
    view = overridden(a_cluster(1), of_0=configs, of_all=configs)
    assert decide_alter_broker(view, broker, [ConfigChange(name, DELETE, None)]) == {}
    with pytest.raises(ApiError, match="its type is not LIST"):
        decide_alter_broker(a_cluster(1), broker, [ConfigChange(name, APPEND, "3")])


LATER = {METADATA_LEVEL: (1, 2), ELR: (1, 1)}


def with_features(broker_id: int, features: dict[str, tuple[int, int]]) -> BrokerRegistration:
    return msgspec.structs.replace(registration(broker_id), features=features)


def test_a_feature_level_is_raised_only_if_every_registered_broker_supports_it() -> None:
    update = FeatureUpdate(METADATA_LEVEL, 2, UpgradeType.UPGRADE)
    everybody = [with_features(0, LATER), with_features(1, LATER)]
    assert decide_update_features(FIRST_LEVELS, [update], everybody, []) == {METADATA_LEVEL: 2, ELR: 1}
    older = [with_features(0, LATER), registration(1)]  # Broker 1 registered before features had levels.
    with pytest.raises(ApiError, match="broker 1 supports levels 1 to 1") as refused:
        decide_update_features(FIRST_LEVELS, [update], older, [])
    assert refused.value.code is ErrorCode.INVALID_UPDATE_VERSION


def test_a_feature_level_is_lowered_only_by_an_explicit_downgrade() -> None:
    levels = {METADATA_LEVEL: 2, ELR: 1}
    with pytest.raises(ApiError, match="an upgrade cannot lower the level"):
        decide_update_features(levels, [FeatureUpdate(METADATA_LEVEL, 1, UpgradeType.UPGRADE)], [], [])
    update = FeatureUpdate(METADATA_LEVEL, 1, UpgradeType.SAFE_DOWNGRADE)
    assert decide_update_features(levels, [update], [], []) == FIRST_LEVELS


@pytest.mark.parametrize(
    ("name", "level", "why"),
    [
        ("nope", 1, "the supported features are barnabas.metadata.version, eligible.leader.replicas.version"),
        (ELR, 0, "this broker supports levels 1 to 1"),
        (METADATA_LEVEL, 99, "this broker supports levels 1 to 5"),
    ],
)
def test_unsupported_feature_levels_are_refused(name: str, level: int, why: str) -> None:
    with pytest.raises(ApiError, match=why) as refused:
        decide_update_features(FIRST_LEVELS, [FeatureUpdate(name, level, UpgradeType.UNSAFE_DOWNGRADE)], [], [])
    assert refused.value.code is ErrorCode.INVALID_UPDATE_VERSION


EVERYBODY = [with_features(0, {name: (levels.lowest, levels.highest) for name, levels in SUPPORTED.items()})]
OF_METADATA_ALONE = FeatureUpdate(METADATA_LEVEL, 5, UpgradeType.UPGRADE)
BACK = FeatureUpdate(METADATA_LEVEL, 2, UpgradeType.SAFE_DOWNGRADE)


def test_raising_the_metadata_level_raises_the_features_that_it_has_unless_they_are_named() -> None:
    levels = {METADATA_LEVEL: 2, ELR: 1}
    assert decide_update_features(levels, [OF_METADATA_ALONE], EVERYBODY, []) == NEW_LEVELS
    to_three = FeatureUpdate(METADATA_LEVEL, 3, UpgradeType.UPGRADE)
    raised = decide_update_features(levels, [to_three], EVERYBODY, [])
    assert raised == {METADATA_LEVEL: 3, ELR: 1, TRANSACTION_VERSION: 2}
    assert decide_update_features(raised, [OF_METADATA_ALONE], EVERYBODY, []) == NEW_LEVELS
    named = FeatureUpdate(TRANSACTION_VERSION, 1, UpgradeType.UPGRADE)
    raised = decide_update_features(levels, [OF_METADATA_ALONE, named], EVERYBODY, [])
    assert (raised[TRANSACTION_VERSION], raised[GROUP_VERSION]) == (1, 1)


def test_lowering_the_metadata_level_removes_the_features_that_it_lacks() -> None:
    assert decide_update_features(NEW_LEVELS, [BACK], EVERYBODY, []) == {METADATA_LEVEL: 2, ELR: 1}


USES = {
    TRANSACTION_VERSION: r"transactions are open \(pay, ship\); end these transactions first",
    GROUP_VERSION: r"groups use the consumer protocol \(pay, ship\); restart their members with group.protocol=classic",
    SHARE_VERSION: r"there are share groups \(pay, ship\); delete these groups first",
}


@pytest.mark.parametrize("feature", USES)
def test_a_feature_is_not_lowered_while_something_uses_it(feature: str) -> None:
    to_zero = FeatureUpdate(feature, 0, UpgradeType.SAFE_DOWNGRADE)
    assert lowered(NEW_LEVELS, [to_zero]) == [feature]
    assert lowered(NEW_LEVELS, [BACK]) == [TRANSACTION_VERSION, GROUP_VERSION, SHARE_VERSION]
    assert not lowered({METADATA_LEVEL: 2, ELR: 1}, [OF_METADATA_ALONE])
    for update in (to_zero, BACK):
        with pytest.raises(ApiError, match=f"for feature {feature}: {USES[feature]}"):
            decide_update_features(NEW_LEVELS, [update], EVERYBODY, [], {feature: ["pay", "ship"]})
        decide_update_features(NEW_LEVELS, [update], EVERYBODY, [], {feature: []})


def test_an_unsupported_feature_level_of_the_cluster_is_reported() -> None:
    assert unsupported(FIRST_LEVELS) is None
    assert unsupported({METADATA_LEVEL: 6}) == (
        "feature barnabas.metadata.version is finalized at level 6, but this broker version supports levels 1 to 5"
    )
    assert unsupported({"of.later": 1}) == (
        "feature of.later is finalized at level 1, but this broker version does not know the feature"
    )
