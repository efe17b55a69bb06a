"""The credentials for kopf, which asks for them at the start, and whenever the API server has refused them."""

import os
from dataclasses import replace
from itertools import count
from typing import Any, Final

import kopf

from barnabas_core.clock import LoopClock

PAUSE_S: Final = 1.0


class Logins:
    """The source of credentials for kopf.

    An API server that is starting may refuse valid tokens, and kopf never uses refused credentials again. So each call
    of `next` returns the credentials with a different priority, which makes them unequal to all earlier ones.
    """

    def __init__(self, clock: LoopClock) -> None:
        self._clock = clock
        self._numbers = count()

    async def next(self, **given: Any) -> kopf.ConnectionInfo | None:
        """Return the credentials of KUBECONFIG if set, or else of the pod's ServiceAccount; None if there are none.

        Each call after the first waits for PAUSE_S. kopf's default login is not used, because it prefers ~/.kube/config
        to the ServiceAccount.
        """
        number = next(self._numbers)
        if number:
            await self._clock.sleep(PAUSE_S)
        log_in = kopf.login_with_kubeconfig if os.environ.get("KUBECONFIG") else kopf.login_with_service_account
        found = log_in(**given)
        return replace(found, priority=number) if found is not None else None
