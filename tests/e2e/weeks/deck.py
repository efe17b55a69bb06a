"""Orders the actions: all of them once, then all of them again in another order."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from e2e.weeks.action import Action
from e2e.weeks.changes import CHANGES
from e2e.weeks.deletions import DELETIONS
from e2e.weeks.outages import OUTAGES

ACTIONS: Final = {**CHANGES, **DELETIONS, **OUTAGES}


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a run: this many actions in the order of the seed, or only those that are named."""

    actions: int
    seed: int
    only: tuple[str, ...] = ()
    with_long: bool = True

    @property
    def again(self) -> str:
        """Return the command that does the same again."""
        more = "" if self.with_long else " --short"
        names = "".join(f' --only "{name}"' for name in self.only)
        return f"make weeks WEEKS='--seed {self.seed} --actions {self.actions}{more}{names}'"

    def names(self) -> Iterator[str]:
        """Yield the names of the actions, in their order."""
        chance = random.Random(self.seed)
        for number in range(self.actions):
            if number % len(self._deck) == 0:
                shuffled = chance.sample(self._deck, len(self._deck))
            yield shuffled[number % len(self._deck)]

    @property
    def _deck(self) -> Sequence[str]:
        return [name for name, action in ACTIONS.items() if self._has(name, action)]

    def _has(self, name: str, action: Action) -> bool:
        return name in self.only if self.only else self.with_long or not action.is_long
