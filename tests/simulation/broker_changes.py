"""An administrator who alters settings of one and of all brokers by chance, and checks those in force at the end."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from random import Random
from typing import Any, Final, NamedTuple

from barnabas_broker.metadata.documents import ALL_BROKERS
from barnabas_broker.wire.messages import message_class
from barnabas_core.config.definitions import format_value
from barnabas_core.config.describe import ConfigSource
from simulation.clients import NONE, Client, Failed
from simulation.cluster import SETTINGS, SimulatedBroker, SimulatedCluster
from simulation.history import History
from simulation.topic_history import MIN_ISR

DESCRIBE_CONFIGS: Final = 32, 4
ALTER_CONFIGS: Final = 44, 1
BROKER: Final = 4
SET, DELETE = 0, 1
INVALID: Final = 40, 42
BETWEEN_S: Final = 0.5
CONTRADICTION_SHARE: Final = 0.2
LOOKS_MAX: Final = 100
POLL_S: Final = 0.1
IN_SEEDS: Final = 11, (4, 5, 8, 10)
"""The remainders of seeds with changes. Seeds for known mistakes have others, because changes alter a seed's story."""

VALUES: Final = {
    "leader.replication.throttled.rate": ("100000", "200000"),
    "log.cleaner.backoff.ms": ("200", "400"),
    "log.cleaner.min.cleanable.ratio": ("0.25", "0.75"),
    "log.index.interval.bytes": ("256", "1024"),
    "log.retention.ms": ("86400000", "172800000"),
    "log.segment.bytes": ("1048576", "2097152"),
    "log.segment.delete.delay.ms": ("1000", "30000"),
    "message.max.bytes": ("1000000", "2000000"),
    "replica.alter.log.dirs.io.max.bytes.per.second": ("15000", "40000"),
}
"""The values that are set; none of them makes a broker lose acknowledged records."""
VALUES_OF_ALL: Final = {MIN_ISR: ("2", "3")}
"""The values that are for all brokers only. They are set from the beginning, and never removed."""
OF_LOGS: Final = {
    "log.index.interval.bytes": "index_interval_bytes",
    "log.retention.ms": "retention_ms",
    "log.segment.delete.delay.ms": "file_delete_delay_ms",
    "message.max.bytes": "message_bytes_max",
    MIN_ISR: "min_insync_replicas",
}
"""The field of a log's settings, for topics without a setting of their own."""
LAGS: Final = "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"
LOOKED_AT: Final = (*VALUES, *VALUES_OF_ALL, *LAGS)


class Setting(NamedTuple):
    """A setting of a broker (its id as text), or of all."""

    owner: str
    name: str


Changes = Sequence[tuple[str, str | None]]
"""The names and new values; None removes one."""


def alters_brokers(seed: int) -> bool:
    """True if the seed alters settings of brokers."""
    divisor, remainders = IN_SEEDS
    return seed % divisor in remainders


class BrokerChanges:
    """The changes on a cluster with faults. Nothing else uses `random`."""

    def __init__(self, cluster: SimulatedCluster, history: History, topic: str, random: Random) -> None:
        self._cluster = cluster
        self._history = history
        self._topic = topic
        self._random = random
        names = [broker.name for broker in cluster.brokers]
        self._client = Client(cluster.network, "settings", Random(random.getrandbits(64)), names)
        self._allowed: dict[Setting, set[str | None]] = {}
        """The values that each setting may have: the last acknowledged one, and those in doubt."""
        self._in_doubt: dict[Setting, set[str | None]] = {}

    def start(self) -> asyncio.Task[None]:
        """Alter settings until this is cancelled."""
        return self._cluster.loop.spawn(self._client.host, self._run())

    def _violation(self, what: str) -> None:
        self._history.violation(f"broker settings: {what}")

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._random.expovariate(1 / BETWEEN_S))
            with suppress(Failed):
                if self._random.random() < CONTRADICTION_SHARE:
                    await self._contradict()
                else:
                    await self._alter(*self._some_change())

    def _some_broker(self) -> SimulatedBroker:
        return self._random.choice(self._cluster.brokers)

    def _some_change(self) -> tuple[Setting, str | None]:
        name = self._random.choice([*VALUES, *VALUES_OF_ALL])
        if name in VALUES_OF_ALL:
            return Setting(ALL_BROKERS, name), self._random.choice(VALUES_OF_ALL[name])
        owner = ALL_BROKERS if self._random.random() < 0.5 else str(self._some_broker().broker_id)
        return Setting(owner, name), self._random.choice([*VALUES[name], None])

    async def _alter(self, setting: Setting, value: str | None) -> None:
        asked = self._some_broker()
        self._cluster.note(f"alter {setting.name}={value} of broker {setting.owner or 'all'} by {asked.name}")
        self._may_be(setting).add(value)  # It counts even if the response is lost.
        try:
            code = await self._ask(asked, setting.owner, [(setting.name, value)])
        except Failed:
            self._in_doubt.setdefault(setting, set()).add(value)
            raise
        if code in INVALID:
            self._violation(f"{setting}={value} is refused with {code}")
        if code == NONE:
            self._allowed[setting] = {value, *self._in_doubt.get(setting, ())}
            await self._look(asked, setting)

    def _may_be(self, setting: Setting) -> set[str | None]:
        at_first = SETTINGS[MIN_ISR] if setting == Setting(ALL_BROKERS, MIN_ISR) else None
        return self._allowed.setdefault(setting, {at_first})

    async def _look(self, broker: SimulatedBroker, setting: Setting) -> None:
        """Look at a setting: a broker that has acknowledged it shows it from then on."""
        if setting.owner in (ALL_BROKERS, str(broker.broker_id)):
            found = _set_for(setting.owner, await self._described(broker, setting.owner), setting.name)
            if found not in self._may_be(setting):
                self._violation(f"{broker.name} shows {setting}={found}; {self._may_be(setting)} was set")

    async def _contradict(self) -> None:
        """Set values that no broker may accept."""
        asked, owner = self._some_broker(), str(self._some_broker().broker_id)
        anybody = self._random.choice([ALL_BROKERS, owner])
        low, high = LAGS
        wrong: Sequence[tuple[str, Changes]] = (
            (owner, [(MIN_ISR, "2")]),
            (ALL_BROKERS, [(MIN_ISR, None)]),
            (anybody, [("log.dirs", "/elsewhere")]),
            (anybody, [("log.retention.ms", "-7")]),
            (anybody, [(low, "5000"), (high, "1000")]),
        )
        of, changes = self._random.choice(wrong)
        if await self._ask(asked, of, changes) == NONE:
            self._violation(f"{asked.name} does not refuse {changes} of broker {of or 'all'}")

    async def _ask(self, broker: SimulatedBroker, owner: str, changes: Changes) -> int:
        request = message_class("IncrementalAlterConfigsRequest")
        resource = request.AlterConfigsResource
        configs = [
            resource.AlterableConfig(name=name, config_operation=DELETE if value is None else SET, value=value)
            for name, value in changes
        ]
        wanted = resource(resource_type=BROKER, resource_name=owner, configs=configs)
        made = request(resources=[wanted], validate_only=False)
        return int((await self._client.ask(broker.name, ALTER_CONFIGS, made)).responses[0].error_code)

    async def _described(self, broker: SimulatedBroker, owner: str) -> dict[str, Any]:
        """Return the described entries by name. Raises Failed."""
        request = message_class("DescribeConfigsRequest")
        wanted = request.DescribeConfigsResource(
            resource_type=BROKER, resource_name=owner, configuration_keys=[*LOOKED_AT]
        )
        made = request(resources=[wanted], include_synonyms=True, include_documentation=False)
        result = (await self._client.ask(broker.name, DESCRIBE_CONFIGS, made)).results[0]
        if result.error_code != NONE:
            raise Failed(f"error {result.error_code}")
        return {entry.name: entry for entry in result.configs}

    async def check_at_the_end(self) -> None:
        """Check the settings once all is mended and they have had a little time to reach every broker."""
        complaints = ["no broker has told its settings"]
        for _ in range(LOOKS_MAX):
            with suppress(Failed):
                complaints = await self._cluster.loop.spawn(self._client.host, self._complaints())
                if not complaints:
                    return
            await asyncio.sleep(POLL_S)
        for complaint in complaints:
            self._violation(complaint)

    async def _complaints(self) -> list[str]:
        found, of_all = [], []
        for broker in self._cluster.brokers:
            own, everybodys = [await self._described(broker, each) for each in (str(broker.broker_id), ALL_BROKERS)]
            of_all.append({name: _set_for(ALL_BROKERS, everybodys, name) for name in LOOKED_AT})
            found += [f"{broker.name} {each}" for name in LOOKED_AT for each in self._wrong(broker, own, name)]
        if any(each != of_all[0] for each in of_all):
            found.append(f"brokers show different settings of all: {of_all}")
        return found

    def _wrong(self, broker: SimulatedBroker, entries: dict[str, Any], name: str) -> Iterator[str]:
        own, of_all = (Setting(owner, name) for owner in (str(broker.broker_id), ALL_BROKERS))
        shown = {setting: _set_for(setting.owner, entries, name) for setting in (own, of_all)}
        for setting, value in shown.items():
            if value not in self._may_be(setting):
                yield f"shows {setting}={value}; {self._may_be(setting)} was set"
        expected = shown[of_all] if shown[own] is None else shown[own]
        entry = entries[name]
        if expected is not None and entry.value != expected:
            yield f"shows {name}={entry.value}, and {expected} is set"
        yield from self._out_of_force(broker, name, entry.value)

    def _out_of_force(self, broker: SimulatedBroker, name: str, shown: str | None) -> Iterator[str]:
        """Compare the value in force; a setting that nobody set, and that has no default, is shown as null."""
        if broker.node is None:
            yield "is down after all was mended"
            return
        value = broker.node.config.value(name)
        if shown is not None and format_value(value) != shown:
            yield f"shows {name}={shown}, and goes by {value}"
        for partition in broker.partitions() if name in OF_LOGS else ():
            if partition.topic_partition.topic == self._topic:
                in_log = getattr(partition.log.config, OF_LOGS[name])
                if in_log != value:
                    yield f"has {partition.topic_partition} with {name}={in_log}, and shows {shown}"


def _set_for(owner: str, entries: dict[str, Any], name: str) -> str | None:
    """Return the value set for all, or for the broker itself; None if there is none."""
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER if owner == ALL_BROKERS else ConfigSource.DYNAMIC_BROKER
    synonyms = entries[name].synonyms if name in entries else ()
    return next((each.value for each in synonyms if (each.name, each.source) == (name, source)), None)
