"""The users of a Cluster with credentials, ACLs and quotas, as the brokers report them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from barnabas_core.acls import AclEntry, AclPattern, plain_host

PRINCIPAL: Final = "User:"
SCRAM_512: Final = "SCRAM-SHA-512"
SCRAM_256: Final = "SCRAM-SHA-256"


class Acl(NamedTuple):
    """An ACL: a resource pattern, and an entry that allows or denies a principal one operation."""

    pattern: AclPattern
    entry: AclEntry

    @property
    def plain(self) -> "Acl":
        """Return the ACL with its host in canonical form, for comparisons."""
        return Acl(self.pattern, self.entry._replace(host=plain_host(self.entry.host)))

    def __str__(self) -> str:
        what = f"{self.entry.permission.name.lower()} {self.entry.operation.name}"
        kind = self.pattern.resource_type.name.lower().replace("_", " ")
        of = f"{kind} {self.pattern.name} ({self.pattern.pattern_type.name.lower()})"
        return f"{what} on {of} from {self.entry.host}"


@dataclass(frozen=True, slots=True)
class FoundUser:
    """A user with the SCRAM mechanisms, ACLs and quotas that the brokers report."""

    mechanisms: frozenset[str] = frozenset()
    acls: frozenset[Acl] = frozenset()
    quotas: Mapping[str, float] | None = None
    """The quotas by Kafka's key, or None if the user has no quotas."""

    @property
    def is_there(self) -> bool:
        """True if the user has credentials, ACLs or quotas."""
        return bool(self.mechanisms or self.acls or self.quotas)


@dataclass(frozen=True, slots=True)
class ClusterUsers:
    """All users by name; `has_authorizer` is True if the brokers have an authorizer."""

    users: Mapping[str, FoundUser]
    has_authorizer: bool = True

    def of(self, username: str) -> FoundUser:
        """Return the user with this name, or an empty user if the brokers report none."""
        return self.users.get(username, FoundUser())
