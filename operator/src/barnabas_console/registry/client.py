"""The client of a schema registry that has the HTTP interface of Confluent's.

The address comes from the settings alone: a message names a schema by a number, and redirects are not followed.
"""

import asyncio
import base64
import ssl
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple
from urllib.parse import quote, urlsplit

import aiohttp
import msgspec
from yarl import URL

ADDRESS: Final = "schema.registry.url"
SOURCE: Final = "basic.auth.credentials.source"
USER: Final = "basic.auth.user.info"
TRUST_TYPE: Final = "schema.registry.ssl.truststore.type"
TRUST: Final = "schema.registry.ssl.truststore.location"
USER_INFO: Final = "USER_INFO"
PEM: Final = "PEM"
TIMEOUT_S: Final = 3.0
SILENCE_S: Final = 10.0
"""The seconds in which a registry that did not answer is not asked again, so that messages do not wait for it."""
MISSING_S: Final = 30.0
"""The seconds for which a schema that the registry does not have is not asked for again."""
MISSING_MAX: Final = 100
"""The schemas that are missing at one time, after which none is asked for: anybody may write any number."""
KNOWN_MAX: Final = 256
SCHEMA_BYTES_MAX: Final = 256 << 10
REFERENCES_MAX: Final = 50
CONNECTIONS_MAX: Final = 4
AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"


class InvalidRegistry(Exception):
    """The error that a setting is invalid; the message has its name, its value unless secret, and what is allowed."""


class RegistrySettings(NamedTuple):
    """The address of a registry without a slash at its end, `user:password` or nothing, and a file of authorities."""

    address: str
    user_info: str = ""
    trust: str = ""


def registry_settings(given: Mapping[str, str]) -> RegistrySettings | None:
    """Return the settings in client properties, or None if they name no registry. Raises InvalidRegistry."""
    address = given.get(ADDRESS, "")
    if not address:
        return None
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname or "," in address or parts.query or parts.fragment:
        raise InvalidRegistry(f"{ADDRESS}={address}; allowed: one address, http://HOST:PORT or https://HOST:PORT")
    if parts.username is not None:
        raise InvalidRegistry(f"{ADDRESS} must have no user; set {SOURCE}={USER_INFO} and {USER}=USER:PASSWORD")
    user_info, source = given.get(USER, ""), given.get(SOURCE, "")
    if source not in ("", USER_INFO) or (source == "") != (user_info == ""):
        raise InvalidRegistry(f"{SOURCE}={source}; allowed: {USER_INFO} with {USER}, or neither")
    if TRUST in given and given.get(TRUST_TYPE) != PEM:
        raise InvalidRegistry(f"{TRUST_TYPE}={given.get(TRUST_TYPE, 'JKS, the default')}; allowed: {PEM}")
    found = RegistrySettings(address.rstrip("/"), user_info, given.get(TRUST, ""))
    _context(found)
    return found


def _context(settings: RegistrySettings) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=settings.trust or None)
    except OSError as error:
        raise InvalidRegistry(f"{TRUST}={settings.trust}: {error.strerror}; allowed: a file in PEM") from error


def session_of(settings: RegistrySettings) -> aiohttp.ClientSession:
    """Return a session for requests to the registry; the loop must run."""
    headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
    if settings.user_info:
        headers["Authorization"] = f"Basic {base64.b64encode(settings.user_info.encode()).decode()}"
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=CONNECTIONS_MAX, ssl=_context(settings)),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=TIMEOUT_S),
        headers=headers,
        auto_decompress=False,
    )


class Schema(NamedTuple):
    """A schema: the text, or base64 of a file descriptor for PROTOBUF. What a reference needs is before it."""

    schema_id: int
    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


class Missing(NamedTuple):
    """The reason why a schema is not known."""

    reason: str


class _Reference(msgspec.Struct):
    name: str
    subject: str
    version: int


class _Answer(msgspec.Struct, rename="camel"):
    schema: str
    schema_type: str | None = None
    references: list[_Reference] | None = None


class _Refused(Exception):
    """The error that the registry has answered without the schema; the message has the reason."""


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
        except _Refused as error:
            missing = Missing(str(error))
            self._missing[schema_id] = (self._steady_s() + MISSING_S, missing)
            return missing
        if len(self._known) >= KNOWN_MAX:
            del self._known[next(iter(self._known))]
        self._known[schema_id] = found
        return found

    async def _read(self, schema_id: int) -> Schema:
        found = await self._get(f"/schemas/ids/{schema_id}")
        references: dict[str, str] = {}
        await self._follow(found, references)
        return Schema(schema_id, found.schema_type or AVRO, found.schema, tuple(references.items()))

    async def _follow(self, answer: _Answer, done: dict[str, str]) -> None:
        """Add the schemas to which an answer refers; each name is added once, so a circle ends."""
        for each in answer.references or ():
            if each.name in done:
                continue
            if len(done) >= REFERENCES_MAX:
                raise _Refused(f"it refers to more than {REFERENCES_MAX} others")
            done[each.name] = ""
            found = await self._get(f"/subjects/{quote(each.subject, safe='')}/versions/{each.version}")
            await self._follow(found, done)
            del done[each.name]
            done[each.name] = found.schema

    async def _get(self, path: str) -> _Answer:
        """Return an answer; that of Protobuf with the file descriptor in place of the source text."""
        found = _decoded(await self._body(path))
        return _decoded(await self._body(f"{path}?format=serialized")) if found.schema_type == PROTOBUF else found

    async def _body(self, path: str) -> bytes:
        url = URL(f"{self._settings.address}{path}", encoded=True)
        body = b""
        async with self._session.get(url, allow_redirects=False) as answer:
            if answer.status != 200:
                raise _Refused(f"the registry answers with status {answer.status}")
            async for chunk in answer.content.iter_any():
                body += chunk
                if len(body) > SCHEMA_BYTES_MAX:
                    raise _Refused(f"it has more than {SCHEMA_BYTES_MAX} bytes")
        return body


def _decoded(body: bytes) -> _Answer:
    try:
        return msgspec.json.decode(body, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _Refused(f"the answer of the registry is invalid: {error}") from error
