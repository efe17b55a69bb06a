"""The JWK sets with which listeners verify tokens; threads read them again periodically."""

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from barnabas_broker.app.recovery import in_daemon_thread
from barnabas_broker.security.sasl.listener_mechanisms import OAuthSettings
from barnabas_broker.security.sasl.tokens.token_keys import KeysUnavailable, TokenKeys
from barnabas_core.clock import LoopClock

if TYPE_CHECKING:
    from barnabas_broker.security.sasl.tokens.key_set import TokenKey

log = logging.getLogger(__name__)

FETCH_S: Final = 10.0
"""The timeout in seconds of a whole request for a key set, and also of each network operation of the request."""


class KeySets:
    """The key sets of all listeners of a broker."""

    def __init__(self, clock: LoopClock) -> None:
        self._clock = clock
        self.all: list[TokenKeys] = []

    def open(self, settings: OAuthSettings) -> TokenKeys:
        """Return the still empty key set of a listener; `load` fetches the keys later. Raises InvalidConfig."""
        # This import slows the start, and only OAUTHBEARER needs it.
        from barnabas_broker.app.key_set_reader import read_key_set, trusting

        read = partial(read_key_set, settings.url, trusting(settings.trust), FETCH_S)
        keys = TokenKeys(settings.url, partial(self._fetch, read), settings.times, self._clock)
        self.all.append(keys)
        return keys

    async def load(self) -> None:
        """Fetch all key sets for the first time. Raises KeysUnavailable if a file cannot be read.

        If a URL does not respond, the broker only logs a warning, because clients without OAUTHBEARER need no keys.
        """
        for keys in self.all:
            try:
                await keys.load()
            except KeysUnavailable as error:
                if keys.url.startswith("file:"):
                    raise
                log.warning(
                    "the JWK set at %s could not be fetched: %s; no client can authenticate with OAUTHBEARER until the "
                    "broker has the keys",
                    keys.url,
                    error,
                )

    async def _fetch(self, read: "Callable[[], tuple[TokenKey, ...]]") -> "tuple[TokenKey, ...]":
        try:
            async with self._clock.timeout(FETCH_S):
                return await in_daemon_thread(read)
        except TimeoutError:
            raise KeysUnavailable(f"there was no complete response within {FETCH_S:g} s") from None
