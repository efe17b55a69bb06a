"""What a user does, or what happens to one, in the first weeks."""

import random
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from e2e.pods.under_traffic import STALL_SECONDS_MAX
from e2e.weeks.site import Site
from e2e.weeks.tenant import Tenant


class Down(Enum):
    """Of which Clusters all brokers go down, so that their clients wait."""

    NONE = "none"
    ONE = "its own"
    ALL = "all"


class Action(NamedTuple):
    """`do` returns when it is seen to have been done; that all is whole again is waited for afterwards."""

    do: Callable[[Site, Tenant, random.Random], None]
    takes_down: Down = Down.NONE
    stall_seconds_max: float = STALL_SECONDS_MAX
    """For writers and readers of every Cluster of which not all brokers go down."""
    is_long: bool = False
    """Only for runs of hours."""
    moves_disks: bool = False
    """A backup of etcd from before it does not know all claims, so that what they hold would be gone with them."""

    @property
    def aim(self) -> str:
        """What is allowed on a machine with little load."""
        allowed = f"{self.stall_seconds_max:g} s"
        return {
            Down.NONE: allowed,
            Down.ONE: f"none: all its brokers go down; {allowed} of the other",
            Down.ALL: "none: all brokers go down",
        }[self.takes_down]
