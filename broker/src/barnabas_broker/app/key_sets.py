"""The JWK sets that listeners verify tokens with, kept fresh. Threads of their own read them."""

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from barnabas_broker.app.recovery import in_daemon_thread
from barnabas_broker.security.sasl.oauth_settings import OAuthSettings
from barnabas_broker.security.sasl.tokens.token_keys import KeysUnavailable, TokenKeys
from barnabas_core.clock import LoopClock

if TYPE_CHECKING:
    from barnabas_broker.security.sasl.tokens.key_set import TokenKey

log = logging.getLogger(__name__)

FETCH_S: Final = 10.0
"""The time for a whole answer, and so for each step of it."""


class KeySets:
    """The key sets of all listeners of a broker."""

    def __init__(self, clock: LoopClock) -> None:
        self._clock = clock
        self.all: list[TokenKeys] = []

    def open(self, settings: OAuthSettings) -> TokenKeys:
        """Return the keys of a listener, which are not fetched yet. Raises InvalidConfig."""
        # A broker without OAUTHBEARER starts faster without it.
        from barnabas_broker.app.key_set_reader import read_key_set, trusting

        read = partial(read_key_set, settings.url, trusting(settings.trust), FETCH_S)
        keys = TokenKeys(settings.url, partial(self._fetch, read), settings.times, self._clock)
        self.all.append(keys)
        return keys

    async def load(self) -> None:
        """Fetch all for the first time. Raises KeysUnavailable for a file.

        A URL may answer later: while nobody can get a token, brokers go on without the clients that need one.
        """
        for keys in self.all:
            try:
                await keys.load()
            except KeysUnavailable as error:
                if keys.url.startswith("file:"):
                    raise
                log.warning("%s: %s; until it answers, no client can authenticate by OAUTHBEARER", keys.url, error)

    async def _fetch(self, read: "Callable[[], tuple[TokenKey, ...]]") -> "tuple[TokenKey, ...]":
        try:
            async with self._clock.timeout(FETCH_S):
                return await in_daemon_thread(read)
        except TimeoutError:
            raise KeysUnavailable(f"no complete answer within {FETCH_S:g} s") from None
