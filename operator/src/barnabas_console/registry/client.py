"""The client of a schema registry. It follows no redirects, and keeps what it has read."""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import aiohttp
from yarl import URL

from barnabas_registry.schemas import (
    SCHEMA_BYTES_MAX,
    TRUST,
    AnswerRefused,
    InvalidRegistry,
    RegistrySettings,
    Schema,
    by_id,
    registry_settings,
)

TIMEOUT_S: Final = 3.0
SILENCE_S: Final = 10.0
"""The seconds in which a registry that did not answer is not asked again, so that messages do not wait for it."""
MISSING_S: Final = 30.0
"""The seconds for which a schema that the registry does not have is not asked for again."""
MISSING_MAX: Final = 100
"""The schemas that are missing at one time, after which none is asked for: anybody may write any number."""
KNOWN_MAX: Final = 256
CONNECTIONS_MAX: Final = 4


def settings_of(given: Mapping[str, str]) -> RegistrySettings | None:
    """Return the settings in client properties, or None if they name no registry. Raises InvalidRegistry."""
    found = registry_settings(given)
    if found is not None:
        _context(found)
    return found


def _context(settings: RegistrySettings) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=settings.trust or None)
    except OSError as error:
        raise InvalidRegistry(f"{TRUST}={settings.trust}: {error.strerror}; allowed: a file in PEM") from error


def session_of(settings: RegistrySettings) -> aiohttp.ClientSession:
    """Return a session for requests to the registry; the loop must run."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=CONNECTIONS_MAX, ssl=_context(settings)),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=TIMEOUT_S),
        headers=settings.headers,
        auto_decompress=False,
    )


class Missing(NamedTuple):
    """The reason why a schema is not known."""

    reason: str


class Registry:
    """The schemas of a registry, which are kept because a number always has the same schema.

    `steady_s` is a clock that never goes back.
    """

    def __init__(self, settings: RegistrySettings, session: aiohttp.ClientSession, steady_s: Callable[[], float]):
        self._settings = settings
        self._session = session
        self._steady_s = steady_s
        self._one_asks = asyncio.Lock()
        self._known: dict[int, Schema] = {}
        self._missing: dict[int, tuple[float, Missing]] = {}
        self._silent_until_s = float("-inf")

    async def schema(self, schema_id: int) -> Schema | Missing:
        """Return a schema by its number. Requests go out one after the other, so none is asked for twice."""
        async with self._one_asks:
            found = self._known.get(schema_id) or self._refusal(schema_id)
            return found if found is not None else await self._asked(schema_id)

    def _refusal(self, schema_id: int) -> Missing | None:
        """Return the reason why the registry is not asked now, or None if it is."""
        now_s = self._steady_s()
        self._missing = {number: each for number, each in self._missing.items() if each[0] > now_s}
        if schema_id in self._missing:
            return self._missing[schema_id][1]
        if now_s < self._silent_until_s:
            return Missing("the registry does not answer")
        if len(self._missing) >= MISSING_MAX:
            return Missing(f"not asked for, because the registry lacks {MISSING_MAX} others of the last messages")
        return None

    async def _asked(self, schema_id: int) -> Schema | Missing:
        try:
            found = await self._read(schema_id)
        except (aiohttp.ClientError, TimeoutError, OSError):
            self._silent_until_s = self._steady_s() + SILENCE_S
            return Missing("the registry does not answer")
        except AnswerRefused as error:
            missing = Missing(str(error))
            self._missing[schema_id] = (self._steady_s() + MISSING_S, missing)
            return missing
        if len(self._known) >= KNOWN_MAX:
            del self._known[next(iter(self._known))]
        self._known[schema_id] = found
        return found

    async def _read(self, schema_id: int) -> Schema:
        steps = by_id(schema_id)
        path = next(steps)
        while True:
            body = await self._body(path)
            try:
                path = steps.send(body)
            except StopIteration as read:
                found: Schema = read.value
                return found

    async def _body(self, path: str) -> bytes:
        url = URL(f"{self._settings.address}{path}", encoded=True)
        body = b""
        async with self._session.get(url, allow_redirects=False) as answer:
            if answer.status != 200:
                raise AnswerRefused(f"the registry answers with status {answer.status}")
            async for chunk in answer.content.iter_any():
                body += chunk
                if len(body) > SCHEMA_BYTES_MAX:
                    raise AnswerRefused(f"it has more than {SCHEMA_BYTES_MAX} bytes")
        return body
