"""An action: something that a user does, or that happens, in the first weeks."""

import random
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from e2e.pods.under_traffic import STALL_SECONDS_MAX
from e2e.weeks.site import Site
from e2e.weeks.tenant import Tenant


class Down(Enum):
    """The Clusters whose brokers all go down, so that their clients wait."""

    NONE = "none"
    ONE = "its own"
    ALL = "all"


class Action(NamedTuple):
    """An action. `do` returns when it is done; the run waits afterwards until all is whole again."""

    do: Callable[[Site, Tenant, random.Random], None]
    takes_down: Down = Down.NONE
    stall_seconds_max: float = STALL_SECONDS_MAX
    """The longest stall of writers and readers of every Cluster that keeps some brokers."""
    is_long: bool = False
    """True if only runs of hours do it."""
    moves_disks: bool = False
    """True if an earlier backup of etcd lacks claims that it makes: a restore would lose what they hold."""

    @property
    def aim(self) -> str:
        """Return the bound on a machine with little load."""
        allowed = f"{self.stall_seconds_max:g} s"
        return {
            Down.NONE: allowed,
            Down.ONE: f"none: all its brokers go down; {allowed} of the other",
            Down.ALL: "none: all brokers go down",
        }[self.takes_down]
