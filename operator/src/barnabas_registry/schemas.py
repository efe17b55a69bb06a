"""The questions to a schema registry with the HTTP interface of Confluent's, and what its answers mean.

The address comes from the settings alone: a message names a schema by a number. Who uses this module sends the requests
and follows no redirects.
"""

import base64
from collections.abc import Generator, Mapping
from typing import Final, NamedTuple
from urllib.parse import quote, urlsplit

import msgspec

ADDRESS: Final = "schema.registry.url"
SOURCE: Final = "basic.auth.credentials.source"
USER: Final = "basic.auth.user.info"
TRUST_TYPE: Final = "schema.registry.ssl.truststore.type"
TRUST: Final = "schema.registry.ssl.truststore.location"
USER_INFO: Final = "USER_INFO"
PEM: Final = "PEM"
SCHEMA_BYTES_MAX: Final = 256 << 10
"""The most bytes of an answer; reading stops there."""
REFERENCES_MAX: Final = 50
AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
NAMES: Final = {AVRO: "Avro", JSON: "JSON Schema", PROTOBUF: "Protobuf"}


class InvalidRegistry(Exception):
    """The error that a setting is invalid; the message has its name, its value unless secret, and what is allowed."""


class AnswerRefused(Exception):
    """The error that an answer of the registry cannot be used; the message has the reason."""


class RegistrySettings(NamedTuple):
    """The address of a registry without a slash at its end, `user:password` or nothing, and a file of authorities."""

    address: str
    user_info: str = ""
    trust: str = ""

    @property
    def headers(self) -> dict[str, str]:
        """The headers of every request."""
        login = {"Authorization": f"Basic {base64.b64encode(self.user_info.encode()).decode()}"}
        return {"Accept": "application/json", "Accept-Encoding": "identity", **(login if self.user_info else {})}


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
    return RegistrySettings(address.rstrip("/"), user_info, given.get(TRUST, ""))


class Schema(NamedTuple):
    """A schema: the text, or base64 of a file descriptor for PROTOBUF. What a reference needs is before it."""

    schema_id: int
    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


class _Reference(msgspec.Struct):
    name: str
    subject: str
    version: int


class _Answer(msgspec.Struct, rename="camel"):
    schema: str
    schema_type: str | None = None
    id: int | None = None
    references: list[_Reference] | None = None


Steps = Generator[str, bytes, Schema]
"""The requests for a schema: each yields a path, and is sent the body of the answer."""


def by_id(schema_id: int) -> Steps:
    """Ask for a schema by its number."""
    return _steps(f"/schemas/ids/{schema_id}", schema_id)


def by_version(subject: str, version: int) -> Steps:
    """Ask for a version of a subject, which may have been deleted."""
    return _steps(f"/subjects/{quote(subject, safe='')}/versions/{version}?deleted=true", None)


def _steps(path: str, schema_id: int | None) -> Steps:
    found = yield from _get(path)
    number = found.id if schema_id is None else schema_id
    if number is None:
        raise AnswerRefused("the answer of the registry is invalid: it has no id")
    references: dict[str, str] = {}
    yield from _follow(found, references)
    return Schema(number, found.schema_type or AVRO, found.schema, tuple(references.items()))


def _follow(answer: _Answer, done: dict[str, str]) -> Generator[str, bytes, None]:
    """Add the schemas to which an answer refers; each name is added once, so a circle ends."""
    for each in answer.references or ():
        if each.name in done:
            continue
        if len(done) >= REFERENCES_MAX:
            raise AnswerRefused(f"it refers to more than {REFERENCES_MAX} others")
        done[each.name] = ""
        found = yield from _get(f"/subjects/{quote(each.subject, safe='')}/versions/{each.version}")
        yield from _follow(found, done)
        del done[each.name]
        done[each.name] = found.schema


def _get(path: str) -> Generator[str, bytes, _Answer]:
    """Return an answer; that of Protobuf with the file descriptor in place of the source text."""
    found = _decoded((yield path))
    if found.schema_type == PROTOBUF:
        found = _decoded((yield f"{path}{'&' if '?' in path else '?'}format=serialized"))
    return found


def _decoded(body: bytes) -> _Answer:
    try:
        return msgspec.json.decode(body, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise AnswerRefused(f"the answer of the registry is invalid: {error}") from error
