"""Writes Events. A refused one stops nothing."""

import logging
from collections.abc import Mapping
from typing import Any

from barnabas_operator.kube.api import KubeApi, KubeRefused, KubeUnreachable

log = logging.getLogger(__name__)


class EventWriter:
    """The writer of Events, as `kubectl describe` shows them."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api

    async def tell(self, event: Mapping[str, Any]) -> None:
        """Send one Event; log it if the API server refuses it or does not answer."""
        about = event["involvedObject"]
        try:
            await self._api.create(event)
        except (KubeRefused, KubeUnreachable) as error:
            log.warning("%s/%s: the event %s: %s", about["namespace"], about["name"], event["reason"], error)
