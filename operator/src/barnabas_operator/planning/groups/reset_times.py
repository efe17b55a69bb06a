"""The time to which a reset sets offsets."""

from datetime import UTC, datetime, timedelta
from typing import Final

from barnabas_operator.planning.groups.durations import duration_s
from barnabas_operator.planning.refusal import Refusal
from barnabas_operator.resources.consumer_group import ResetTo

DATETIME_IN_FUTURE: Final = "DatetimeInFuture"
INVALID_RESET: Final = "InvalidReset"
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND: Final = timedelta(milliseconds=1)


def reset_time_ms(to: ResetTo, now: datetime) -> int | Refusal | None:
    """Return the time that the reset names, in ms since 1970, or None if the reset names no time.

    Return a refusal if the time is invalid or in the future.
    """
    if to.by_duration is not None:
        return max(0, _milliseconds(now) - int(duration_s(to.by_duration) * 1000))
    if to.datetime is None:
        return None
    field = f"spec.offsets.reset.to.datetime is {to.datetime}"
    try:
        wanted = datetime.fromisoformat(to.datetime)
    except ValueError as error:
        return Refusal(INVALID_RESET, f"{field}: {error}; allowed: a time such as 2026-11-01T00:00:00Z")
    wanted = wanted if wanted.tzinfo is not None else wanted.replace(tzinfo=UTC)
    if wanted > now:
        problem = f"{field}, which is in the future; the current time is {now.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
        return Refusal(DATETIME_IN_FUTURE, f"{problem}; use a time in the past, or to.latest")
    return max(0, _milliseconds(wanted))


def _milliseconds(time: datetime) -> int:
    """Return `time` in milliseconds since 1970, rounded up so that no record from before `time` is selected."""
    return -((EPOCH - time) // MILLISECOND)
