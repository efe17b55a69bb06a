"""The credentials that kopf asks for: at the start, and again whenever the API server refused those that it has."""

import os
from dataclasses import replace
from itertools import count
from typing import Any, Final

import kopf

from barnabas_core.clock import LoopClock

PAUSE_S: Final = 1.0


class Logins:
    """Each answer is another one to kopf, which never takes again what was refused, and ends its watches then.

    But an API server that starts knows no token yet, and a token that the kubelet has renewed is in the same file.
    """

    def __init__(self, clock: LoopClock) -> None:
        self._clock = clock
        self._numbers = count()

    async def next(self, **given: Any) -> kopf.ConnectionInfo | None:
        """Return the login of KUBECONFIG, if that is set, or else of the pod's own account; None without both.

        The choice is that of `find_access`: kopf by itself would take ~/.kube/config before the pod's account.
        """
        number = next(self._numbers)
        if number:
            await self._clock.sleep(PAUSE_S)
        log_in = kopf.login_with_kubeconfig if os.environ.get("KUBECONFIG") else kopf.login_with_service_account
        found = log_in(**given)
        return replace(found, priority=number) if found is not None else None
