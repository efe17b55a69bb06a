"""The annotations of an authority's Secret, which ask for another certificate or another key at once. Pure.

`force-renew: "true"` asks for a certificate of the same key. `force-replace: "true"` asks for another key, in three
steps an hour apart. The annotation says which one was the last, and is written together with the keys, so that an
operator that is killed goes on where it was:

| annotation | is trusted | signs | next, after an hour |
|---|---|---|---|
| "true" | the former | the former | at once: the new one is trusted |
| "trusted since TIME" | both | the former | the new one signs |
| "signs since TIME" | both | the new one | the former is forgotten |

Brokers, operator and Users get certificates of the new key as soon as it signs. Where somebody takes the annotation
away, it goes on as at two thirds of a lifetime.
"""

import datetime as dt
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

RENEW: Final = "barnabas.dev/force-renew"
REPLACE: Final = "barnabas.dev/force-replace"
ASKED: Final = "true"
DONE: Final = "done"
"""The last word of an annotation; the next write takes it away."""
STEP: Final = dt.timedelta(hours=1)
"""The time that clients have to fetch `ca.crt`, and then certificates of their own."""
_TRUSTED: Final = "trusted since "
_SIGNS: Final = "signs since "

DueStep = Literal["trust", "sign", "forget"]


class Asked(NamedTuple):
    """The steps that are due now, and the annotations once they are taken."""

    renews: bool
    step: DueStep | None
    marks: Mapping[str, str]


def asked_by(marks: Mapping[str, str], now: dt.datetime) -> Asked:
    """Return the requests of annotations that are not carried out yet."""
    renews, replace = marks.get(RENEW) == ASKED, marks.get(REPLACE, "")
    step = _step(replace, now)
    said: Mapping[DueStep | None, str] = {
        "trust": f"{_TRUSTED}{_text(now)}",
        "sign": f"{_SIGNS}{_text(now)}",
        "forget": DONE,
        None: replace if replace.startswith((_TRUSTED, _SIGNS)) else "",
    }
    found = {RENEW: DONE if renews else "", REPLACE: said[step]}
    return Asked(renews, step, {name: value for name, value in found.items() if value})


def _step(replace: str, now: dt.datetime) -> DueStep | None:
    if replace == ASKED:
        return "trust"
    if _is_over(replace, _TRUSTED, now):
        return "sign"
    return "forget" if _is_over(replace, _SIGNS, now) else None


def _is_over(replace: str, since: str, now: dt.datetime) -> bool:
    """True if a step was taken at least an hour ago. A time that cannot be parsed counts as long ago."""
    if not replace.startswith(since):
        return False
    try:
        return now >= dt.datetime.fromisoformat(replace.removeprefix(since)) + STEP
    except (ValueError, TypeError):
        return True


def _text(moment: dt.datetime) -> str:
    return moment.isoformat(timespec="seconds")
