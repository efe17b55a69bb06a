"""With how many replicas a group did not keep up: a steady load does not have it go there again and again. Pure.

A steady load has no lag with just enough replicas, and with one less it grows: lag alone cannot tell that from no load.
"""

from typing import Final, NamedTuple

HOLD_MIN_S: Final = 600.0
HOLD_MAX_S: Final = 6 * 3600.0
ALIKE: Final = 0.25
"""A load that differs by less is the same."""
RATE_S: Final = 300.0


class Written(NamedTuple):
    """What a look found to be written: the sum of the ends of so many partitions."""

    now_s: float
    total: int
    places: int


class TooFew(NamedTuple):
    """The lag grew beyond with so many `replicas` while `rate` records a second were written, None if not known.

    Until `until_s` the same load gets more than that; then it is tried once, and a try that fails doubles `hold_s`.
    """

    replicas: int
    rate: float | None
    until_s: float
    hold_s: float

    def least(self, rate: float | None, now_s: float) -> int:
        """That it may go down to. Less load needs less, in proportion."""
        share = rate / self.rate if rate is not None and self.rate else 1.0
        needed = min(self.replicas, int(self.replicas * share * (1 + ALIKE))) + 1
        return needed if now_s < self.until_s else min(needed, self.replicas)


def grown_beyond(before: TooFew | None, replicas: int, rate: float | None, now_s: float, *, was_try: bool) -> TooFew:
    """`was_try`: it had gone down to these replicas."""
    hold_s = HOLD_MIN_S
    if before is not None and _is_alike(before.rate, rate):
        hold_s = min(before.hold_s * (2 if was_try else 1), HOLD_MAX_S)
    return TooFew(replicas, rate, now_s + hold_s, hold_s)


def _is_alike(before: float | None, now: float | None) -> bool:
    """What is not known may be."""
    return before is None or now is None or abs(now - before) <= ALIKE * before


def gone_down(before: TooFew | None, replicas: int, now_s: float) -> TooFew | None:
    """What was too few and is tried is followed by one less, as long as that goes well."""
    if before is None or replicas > before.replicas:
        return before
    return before._replace(replicas=max(0, replicas - 1), until_s=now_s)


def with_look(before: tuple[Written, ...], look: Written) -> tuple[Written, ...]:
    """The looks of the last `RATE_S`. Partitions that come and go, or are made anew, are nothing that is written."""
    if before and (before[-1].places != look.places or before[-1].total > look.total):
        return (look,)
    return (*(each for each in before if look.now_s - each.now_s <= RATE_S), look)


def rate_of(looks: tuple[Written, ...]) -> float | None:
    """Records a second; None after one look."""
    if len(looks) < 2:
        return None
    first, last = looks[0], looks[-1]
    return (last.total - first.total) / (last.now_s - first.now_s)
