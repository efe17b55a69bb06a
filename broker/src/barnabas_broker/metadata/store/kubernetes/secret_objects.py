"""The content of the Kubernetes Secrets that hold a cluster's secrets, and patches of this content."""

from hashlib import sha256

import msgspec

from barnabas_broker.metadata.store.kubernetes.objects import Metadata
from barnabas_broker.metadata.store.kubernetes.watching import parse_event
from barnabas_broker.metadata.store.metadata_store import StoreUnavailable
from barnabas_broker.metadata.store.secret_store import Secrets
from barnabas_core.credential_secrets import SHARDS


class SecretObject(msgspec.Struct, frozen=True, rename="camel"):
    """The parts of a Secret that a broker reads. The API encodes `data` in base64."""

    metadata: Metadata
    data: dict[str, bytes] = {}


class _Entry(msgspec.Struct, frozen=True):
    """A secret with its key, which may contain characters that the keys of a Kubernetes Secret may not."""

    key: str
    value: msgspec.Raw


class _Change(msgspec.Struct):
    data: dict[str, bytes | None]
    metadata: Metadata = Metadata()


def shard_of(key: str) -> int:
    """Return the number of the Secret that holds a key, which depends on the key's hash."""
    return int(_name(key)[:8], 16) % SHARDS


def change(secrets: Secrets, expected_version: str = "") -> bytes:
    """Return a merge patch that writes these secrets to a Secret.

    The API server refuses a patch with `expected_version` if the Secret has another version.
    """
    data = {
        _name(key): None if value is None else msgspec.json.encode(_Entry(key, msgspec.Raw(value)))
        for key, value in secrets.items()
    }
    return msgspec.json.encode(_Change(data, Metadata(resource_version=expected_version)))


def secrets_in(found: SecretObject) -> tuple[dict[str, bytes], list[str]]:
    """Return the secrets that brokers wrote into a Secret, by key, and the names of the fields that no broker wrote."""
    secrets: dict[str, bytes] = {}
    strange: list[str] = []
    for name, value in found.data.items():
        try:
            entry = msgspec.json.decode(value, type=_Entry)
        except msgspec.MsgspecError:
            strange.append(name)
        else:
            secrets[entry.key] = bytes(entry.value)
    return secrets, strange


def parse_secret(body: bytes) -> SecretObject:
    """Return the Secret in the body of an answer. Raises StoreUnavailable if the body is invalid."""
    try:
        return msgspec.json.decode(body, type=SecretObject)
    except msgspec.MsgspecError as error:
        raise StoreUnavailable(f"the API server returned an invalid Secret: {error}") from error


def secret_after(line: bytes) -> SecretObject | None:
    """Return the Secret in a line of a watch, or None after a deletion. Raises as `parse_event`."""

    def parse(kind: str, found: msgspec.Raw) -> SecretObject | None:
        return None if kind == "DELETED" else msgspec.json.decode(found, type=SecretObject)

    return parse_event(line, parse)


def _name(key: str) -> str:
    return sha256(key.encode()).hexdigest()
