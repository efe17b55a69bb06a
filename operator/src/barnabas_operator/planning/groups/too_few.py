"""The number of replicas that was too small for the load of a group, which the operator remembers.

A group with just enough replicas has no lag, like a group without load. If the operator did not remember the number,
it would scale the group down to that number again and again.
"""

from typing import Final, NamedTuple

HOLD_MIN_S: Final = 600.0
HOLD_MAX_S: Final = 6 * 3600.0
ALIKE: Final = 0.25
"""The relative difference up to which two loads count as the same."""
RATE_S: Final = 300.0


class Written(NamedTuple):
    """An observation of the log end offsets of a group's partitions at the time `now_s`.

    `total` is the sum of the offsets, and `places` the number of the partitions.
    """

    now_s: float
    total: int
    places: int


class TooFew(NamedTuple):
    """A number of `replicas` that could not keep up with `rate` records per second (None if the rate is unknown).

    Until `until_s`, the same load gets more replicas. Afterwards a scale-down may try the number again. If the number
    is too small again, the time until the next try (`hold_s`) doubles.
    """

    replicas: int
    rate: float | None
    until_s: float
    hold_s: float

    def least(self, rate: float | None, now_s: float) -> int:
        """Return the fewest replicas that a scale-down may leave at a load of `rate` records per second.

        At the load with which `replicas` could not keep up, the result is `replicas` + 1. At a lower load, the result
        is proportionally lower. After `until_s`, the result is at most `replicas`, so that a scale-down may try
        `replicas` again.
        """
        share = rate / self.rate if rate is not None and self.rate else 1.0
        needed = min(self.replicas, int(self.replicas * share * (1 + ALIKE))) + 1
        return needed if now_s < self.until_s else min(needed, self.replicas)


def grown_beyond(before: TooFew | None, replicas: int, rate: float | None, now_s: float, *, was_try: bool) -> TooFew:
    """Return a `TooFew` that says that `replicas` did not keep up with `rate` records per second.

    Its `hold_s` is HOLD_MIN_S if `before` is None or has a different rate. Otherwise `hold_s` is copied from `before`,
    and doubled up to HOLD_MAX_S if the last change was a scale-down (`was_try`).
    """
    hold_s = HOLD_MIN_S
    if before is not None and _is_alike(before.rate, rate):
        hold_s = min(before.hold_s * (2 if was_try else 1), HOLD_MAX_S)
    return TooFew(replicas, rate, now_s + hold_s, hold_s)


def _is_alike(before: float | None, now: float | None) -> bool:
    """True if the rates `before` and `now` are about equal, or one of them is unknown."""
    return before is None or now is None or abs(now - before) <= ALIKE * before


def gone_down(before: TooFew | None, replicas: int, now_s: float) -> TooFew | None:
    """Return the `TooFew` to remember after a scale-down to `replicas`: usually `before`, unchanged.

    If `replicas` were too few according to `before`, the scale-down tries them again. The result then says that
    `replicas` - 1 are too few, but the next scale-down may try `replicas` - 1 at once.
    """
    if before is None or replicas > before.replicas:
        return before
    return before._replace(replicas=max(0, replicas - 1), until_s=now_s)


def with_look(before: tuple[Written, ...], look: Written) -> tuple[Written, ...]:
    """Return the observations of the last `RATE_S` seconds, including the new observation `look`.

    If the number of partitions (`places`) has changed or the sum of offsets (`total`) has fallen, return only `look`,
    because no rate can be computed from the earlier observations.
    """
    if before and (before[-1].places != look.places or before[-1].total > look.total):
        return (look,)
    return (*(each for each in before if look.now_s - each.now_s <= RATE_S), look)


def rate_of(looks: tuple[Written, ...]) -> float | None:
    """Return the records written per second, or None if there are fewer than two observations."""
    if len(looks) < 2:
        return None
    first, last = looks[0], looks[-1]
    return (last.total - first.total) / (last.now_s - first.now_s)
