"""The schemas of a topic's subjects, which the driver asks a schema registry for before it reads a range of records.

A producer registers a schema before it writes records with it. So a driver that knows the end of the range, and asks
then, gets all schemas of the range, and nobody asks for a number that a record names.
"""

import ssl
import time
from collections.abc import Callable, Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Final, NamedTuple
from urllib.parse import quote, urlsplit

import msgspec

from barnabas_jobs.planning.errors import JobFailed, Refused
from barnabas_registry.schemas import SCHEMA_BYTES_MAX, AnswerRefused, RegistrySettings, Schema, by_version

TRIES: Final = 6
"""The attempts of a request, with pauses of 1, 2, 4, 8 and 16 s: a registry may start again meanwhile."""
ANSWER_SECONDS_MAX: Final = 10.0
CHUNK: Final = 1 << 16
VERSIONS_MAX: Final = 1_000
SUBJECT_NOT_FOUND: Final = 40401


class Subject(NamedTuple):
    """A subject of the registry: its latest schema, and all schemas that it has had, by their numbers."""

    name: str
    latest: Schema
    schemas: Mapping[int, Schema]


class _Problem(msgspec.Struct):
    error_code: int = 0
    message: str = ""


class SchemaRegistry:
    """The client of a registry, which keeps what it has read, because a version never changes.

    Raises Refused if the registry refuses the user or has an unusable answer, and JobFailed if it does not answer.
    """

    def __init__(self, settings: RegistrySettings, sleep: Callable[[float], None] = time.sleep) -> None:
        self._settings = settings
        self._sleep = sleep
        self._known: dict[tuple[str, int], Schema] = {}
        try:
            self._context = ssl.create_default_context(cafile=settings.trust or None)
        except OSError as error:
            raise Refused(f"registry_truststore={settings.trust}: {error.strerror}; allowed: a file in PEM") from error

    def subject(self, name: str) -> Subject | None:
        """Return a subject with its versions, or None if the registry has none of this name."""
        path = f"/subjects/{quote(name, safe='')}/versions"
        present = self._versions(path)
        if not present:
            return None
        versions = {*present, *(self._versions(f"{path}?deleted=true") or ())}
        if len(versions) > VERSIONS_MAX:
            raise Refused(f"{self}: the subject {name} has {len(versions)} versions; allowed: {VERSIONS_MAX}")
        found = {version: self._version(name, version) for version in sorted(versions)}
        return Subject(name, found[max(present)], {each.schema_id: each for each in found.values()})

    def __str__(self) -> str:
        return f"schema_registry={self._settings.address}"

    def _versions(self, path: str) -> list[int] | None:
        body = self._body(path)
        if body is None:
            return None
        try:
            return msgspec.json.decode(body, type=list[int])
        except msgspec.DecodeError as error:
            raise Refused(f"{self}: {path} has no list of versions ({error}); is it a schema registry?") from error

    def _version(self, subject: str, version: int) -> Schema:
        known = self._known.get((subject, version))
        return known or self._known.setdefault((subject, version), self._read(subject, version))

    def _read(self, subject: str, version: int) -> Schema:
        steps = by_version(subject, version)
        path = next(steps)
        while True:
            body = self._body(path)
            if body is None:
                raise Refused(f"{self}: {path} is not there, which version {version} of {subject} needs")
            try:
                path = steps.send(body)
            except StopIteration as read:
                found: Schema = read.value
                return found
            except AnswerRefused as error:
                raise Refused(f"{self}: version {version} of {subject} cannot be used: {error}") from error

    def _body(self, path: str) -> bytes | None:
        """Return the body of an answer, or None if the registry has no such subject or version."""
        problem = ""
        for attempt in range(TRIES):
            if attempt > 0:
                self._sleep(float(2 ** (attempt - 1)))
            try:
                status, body = self._answer(path)
            except (OSError, HTTPException) as error:
                problem = f"{type(error).__name__}: {error}"
                continue
            if status == 200:
                return body
            answer = _problem(body)
            problem = f"status {status}{f' ({answer.message[:200]})' if answer.message else ''}"
            if status == 404 and answer.error_code == SUBJECT_NOT_FOUND:
                return None
            if status < 500 and status != 429:
                raise Refused(f"{self}: {path} was answered with {problem}; check address, user and rights")
        raise JobFailed(f"{self}: {path} was not answered after {TRIES} tries: {problem}")

    def _answer(self, path: str) -> tuple[int, bytes]:
        """Ask once, and follow no redirect. The answer must come in ANSWER_SECONDS_MAX."""
        address = urlsplit(self._settings.address)
        deadline_s = time.monotonic() + ANSWER_SECONDS_MAX
        host, port = address.hostname or "", address.port
        connection = (
            HTTPSConnection(host, port, timeout=ANSWER_SECONDS_MAX, context=self._context)
            if address.scheme == "https"
            else HTTPConnection(host, port, timeout=ANSWER_SECONDS_MAX)
        )
        try:
            connection.request("GET", f"{address.path}{path}", headers=self._settings.headers)
            answer = connection.getresponse()
            body = b""
            while chunk := answer.read1(CHUNK):
                body += chunk
                if len(body) > SCHEMA_BYTES_MAX:
                    raise Refused(f"{self}: {path} has more than {SCHEMA_BYTES_MAX} bytes")
                if time.monotonic() > deadline_s:
                    raise TimeoutError(f"the answer was not complete after {ANSWER_SECONDS_MAX:.0f} s")
            return answer.status, body
        finally:
            connection.close()


def _problem(body: bytes) -> _Problem:
    try:
        return msgspec.json.decode(body, type=_Problem)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _Problem()
