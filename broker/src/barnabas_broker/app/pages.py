"""The pages of the HTTP listener: /metrics, and /healthz, /startupz and /readyz for probes."""

import asyncio
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final

from barnabas_broker.app.loop_turns import BOUNDS_S, LoopTurns
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.server.metrics.broker_families import (
    Traffic,
    authorizer_families,
    broker_families,
    loop_families,
    process_families,
    quota_families,
    read_usage,
    request_families,
)
from barnabas_broker.server.metrics.exposition import CONTENT_TYPE, hosted_of, render
from barnabas_broker.server.metrics.group_families import (
    group_families,
    share_families,
    share_state_families,
    transaction_families,
)
from barnabas_broker.server.metrics.partition_families import (
    cleaner_families,
    controller_families,
    metadata_families,
    partition_families,
    replication_families,
)
from barnabas_broker.storage.cleaner.manager import LogCleaner
from barnabas_web.http_server import Page, PageMaker, text_page

NAMED_MAX: Final = 10
PROBES: Final = frozenset({"/healthz", "/startupz", "/readyz"})
"""The pages that need no token."""


def starting_pages(progress: Callable[[], str]) -> dict[str, PageMaker]:
    """Return the pages of a broker that is still loading its logs: the process is healthy, but not ready."""

    async def healthz() -> Page:
        return _unless(None)

    async def others() -> Page:
        return _unless(progress())

    return {"/metrics": others, "/healthz": healthz, "/startupz": others, "/readyz": others}


def make_pages(
    environment: HandlerEnvironment,
    traffic: Traffic,
    turns: LoopTurns,
    cleaner: LogCleaner,
    why_not_serving: Callable[[], str | None],
    why_unhealthy: Callable[[], str | None],
) -> Mapping[str, PageMaker]:
    """Return the HTTP pages of a broker that has loaded its logs.

    /healthz fails if the process must be restarted. /startupz succeeds when the broker serves clients, even if a disk
    or log has failed. /readyz also needs all replicas online and in sync; then another broker may restart.
    """

    async def metrics() -> Page:
        usage = await asyncio.to_thread(read_usage)  # Counting 10,000 open files takes 25 ms.
        hosted = await hosted_of(environment.replicas.lookup.partitions())
        families = [
            *broker_families(environment.trust, environment.logs, hosted),
            *request_families(traffic),
            *loop_families(BOUNDS_S, turns.counts, lambda: turns.total_s, turns.longest),
            *cleaner_families(
                cleaner, environment.clock.monotonic_s, [each.path for each in environment.logs.log_dirs]
            ),
        ]
        families += controller_families(environment)
        families += metadata_families(environment)
        families += [*authorizer_families(environment.authorizer), *quota_families(environment.quotas)]
        families += await group_families(environment)
        families += partition_families(hosted)
        families += replication_families(environment.fetchers, environment.followers, environment.isr_changes, hosted)
        families += [*share_families(environment), *share_state_families(environment.share_state)]
        families += [*await transaction_families(environment, hosted), *process_families(usage)]
        return Page(HTTPStatus.OK, CONTENT_TYPE, render(families))

    async def healthz() -> Page:
        return _unless(why_unhealthy())

    async def startupz() -> Page:
        return _unless(why_not_serving())

    async def readyz() -> Page:
        return _unless(why_not_serving() or _why_offline(environment) or _why_behind(environment))

    return {"/metrics": metrics, "/healthz": healthz, "/startupz": startupz, "/readyz": readyz}


def _unless(reason: str | None) -> Page:
    if reason is None:
        return text_page(HTTPStatus.OK, "ok\n")
    return text_page(HTTPStatus.SERVICE_UNAVAILABLE, f"{reason}\n")


def _why_offline(environment: HandlerEnvironment) -> str | None:
    return _named("offline", sorted(map(str, environment.replicas.offline())))


def _why_behind(environment: HandlerEnvironment) -> str | None:
    return _named("not in sync", sorted(map(str, environment.replicas.out_of_sync())))


def _named(what: str, partitions: list[str]) -> str | None:
    more = f" and {len(partitions) - NAMED_MAX} more partitions" if len(partitions) > NAMED_MAX else ""
    return f"{what}: {', '.join(partitions[:NAMED_MAX])}{more}" if partitions else None
