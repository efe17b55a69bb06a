"""Writes Events to the API server, and only logs failures."""

import logging
from collections.abc import Mapping
from typing import Any

from barnabas_operator.kube.api import KubeApi, KubeRefused, KubeUnreachable

log = logging.getLogger(__name__)


class EventWriter:
    """The writer of the Events that `kubectl describe` shows."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api

    async def tell(self, event: Mapping[str, Any]) -> None:
        """Send one Event; only log the error if the API server refuses the Event or does not answer."""
        about = event["involvedObject"]
        try:
            await self._api.create(event)
        except (KubeRefused, KubeUnreachable) as error:
            log.warning(
                "%s/%s: the Event %s could not be sent: %s", about["namespace"], about["name"], event["reason"], error
            )
