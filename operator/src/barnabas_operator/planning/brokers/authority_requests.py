"""The annotations of an authority's Secret that request a new certificate or a new key at once.

`force-renew: "true"` requests a new certificate for the same key. `force-replace: "true"` requests a new key, which is
introduced in three steps, an hour apart. The operator writes the last step into the annotation together with the keys,
so that an operator that restarts continues with the next step:

| annotation | trusted keys | signing key | next step |
|---|---|---|---|
| "true" | old key | old key | the new key is trusted, at once |
| "trusted since TIME" | both keys | old key | the new key signs, after an hour |
| "signs since TIME" | both keys | new key | the old key is removed, after an hour |

As soon as the new key signs, the brokers, the operator and the Users get certificates that are signed with the new key.
If a user removes the annotation, the replacement continues as slowly as the automatic replacement, which begins at two
thirds of the authority's lifetime.
"""

import datetime as dt
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

RENEW: Final = "barnabas.dev/force-renew"
REPLACE: Final = "barnabas.dev/force-replace"
ASKED: Final = "true"
DONE: Final = "done"
"""The value of an annotation whose request the operator has carried out; the operator then removes the annotation."""
STEP: Final = dt.timedelta(hours=1)
"""The time between two steps of the replacement of the certificate authority's key.

Clients fetch the new `ca.crt` while the new key is trusted but does not sign yet. Clients fetch their new certificates
while the new key signs but the old key is still trusted.
"""
_TRUSTED: Final = "trusted since "
_SIGNS: Final = "signs since "

DueStep = Literal["trust", "sign", "forget"]


class Asked(NamedTuple):
    """The requests to carry out now: to renew the certificate, and to take the next step in the replacement of the key.

    `marks` are the annotations of the Secret after these requests have been carried out.
    """

    renews: bool
    step: DueStep | None
    marks: Mapping[str, str]


def asked_by(marks: Mapping[str, str], now: dt.datetime) -> Asked:
    """Return the requests in the annotations `marks` that the operator must carry out now."""
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
    """True if the annotation value `replace` consists of the prefix `since` and a TIME at least `STEP` ago.

    A TIME that cannot be parsed counts as long ago.
    """
    if not replace.startswith(since):
        return False
    try:
        return now >= dt.datetime.fromisoformat(replace.removeprefix(since)) + STEP
    except (ValueError, TypeError):
        return True


def _text(moment: dt.datetime) -> str:
    return moment.isoformat(timespec="seconds")
