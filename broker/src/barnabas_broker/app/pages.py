"""The pages of the HTTP side: /metrics, and /healthz, /startupz, /readyz for who looks after the broker."""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final

from barnabas_broker.handlers.services import Services
from barnabas_broker.server.http import Page, PageMaker, text_page
from barnabas_broker.server.metrics.broker_families import broker_families
from barnabas_broker.server.metrics.cleaner_families import cleaner_families
from barnabas_broker.server.metrics.controller_families import controller_families
from barnabas_broker.server.metrics.exposition import CONTENT_TYPE, render
from barnabas_broker.server.metrics.group_families import group_families
from barnabas_broker.server.metrics.partition_families import partition_families
from barnabas_broker.server.metrics.replication_families import replication_families
from barnabas_broker.server.metrics.request_families import Traffic, request_families
from barnabas_broker.storage.cleaner.manager import LogCleaner

NAMED_MAX: Final = 10


def make_pages(
    services: Services,
    traffic: Traffic,
    cleaner: LogCleaner,
    why_not_serving: Callable[[], str | None],
) -> Mapping[str, PageMaker]:
    """Healthy is who answers at all; started is who serves every partition that is here.

    Ready is who could take over from others, too: whose replicas are in sync. Another broker may restart then.
    """

    async def metrics() -> Page:
        families = [
            *broker_families(services),
            *request_families(traffic),
            *cleaner_families(cleaner, services.clock.monotonic_s, [each.path for each in services.logs.log_dirs]),
        ]
        families += controller_families(services)
        families += await group_families(services)
        families += partition_families(services)
        families += replication_families(services)
        return Page(HTTPStatus.OK, CONTENT_TYPE, await render(families))

    async def healthz() -> Page:
        return text_page(HTTPStatus.OK, "ok\n")

    async def startupz() -> Page:
        return _unless(why_not_serving())

    async def readyz() -> Page:
        return _unless(why_not_serving() or _why_behind(services))

    return {"/metrics": metrics, "/healthz": healthz, "/startupz": startupz, "/readyz": readyz}


def _unless(reason: str | None) -> Page:
    if reason is None:
        return text_page(HTTPStatus.OK, "ok\n")
    return text_page(HTTPStatus.SERVICE_UNAVAILABLE, f"{reason}\n")


def _why_behind(services: Services) -> str | None:
    behind = services.replicas.out_of_sync()
    more = f" and {len(behind) - NAMED_MAX} more" if len(behind) > NAMED_MAX else ""
    return f"not in sync: {', '.join(map(str, behind[:NAMED_MAX]))}{more}" if behind else None
