"""What a user does, or what happens to one, in the first weeks."""

import random
from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

from e2e.weeks.site import Site
from e2e.weeks.tenant import Tenant

STALL_SECONDS_MAX: Final = 10.0
"""For writers and readers of every Cluster of which no more than one broker at a time is away."""


class Down(Enum):
    """Of which Clusters all brokers go down, so that their clients wait."""

    NONE = "none"
    ONE = "its own"
    ALL = "all"


class Action(NamedTuple):
    """`do` returns when it is seen to have been done; that all is whole again is waited for afterwards."""

    do: Callable[[Site, Tenant, random.Random], None]
    takes_down: Down = Down.NONE
    is_long: bool = False
    """Only for runs of hours."""
    moves_disks: bool = False
    """A backup of etcd from before it does not know all claims, so that what they hold would be gone with them."""
