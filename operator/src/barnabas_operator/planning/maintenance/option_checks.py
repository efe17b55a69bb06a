"""The checks of a job's options, made before the job starts."""

import math
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from barnabas_operator.resources.job_table import JOB_TABLE, JobOption, JobRule
from barnabas_operator.resources.maintenance_run import RunSpec

BOOTSTRAP: Final = "bootstrap"
"""The job option that names the bootstrap servers; only the operator may set the option."""
REPORT: Final = "report"
"""The option for a report folder, which must not exist before the run."""
DIGITS_MAX: Final = 20


def option_problems(run: RunSpec, at: str) -> Iterator[str]:
    """Yield a message for each invalid option: name, value and what is allowed."""
    job = JOB_TABLE[run.job]
    known = {name: each for name, each in job.options.items() if name != BOOTSTRAP}
    if BOOTSTRAP in run.options and BOOTSTRAP in job.options:
        yield f"{at}.{BOOTSTRAP} is {run.options[BOOTSTRAP]}; remove the option, because the operator sets it"
    for name, value in run.options.items():
        if name in known and not _fits(known[name], value):
            yield f"{at}.{name} is {value!r}; allowed: {known[name].allowed}"
        elif name not in job.options:
            yield f"{at}.{name} is not an option of {run.job}; allowed: {', '.join(known)}"
    for name, option in known.items():
        if option.required and name not in run.options:
            yield f"{at}.{name} is missing; allowed: {option.allowed}"
    yield from _rule_problems(job.rules, known, run.options, at)


def _rule_problems(
    rules: tuple[JobRule, ...], known: Mapping[str, JobOption], given: Mapping[str, str], at: str
) -> Iterator[str]:
    """Yield the problems of options that contradict each other, or lack an option that they need."""
    for rule in rules:
        one, other = (_value(known[name], given.get(name)) for name in (rule.option, rule.other))
        broken = {
            "ordered": one is not None and other is not None and one >= other,
            "needs": one is not None and other is not True,
            "excludes": one is True and other is True,
        }
        if broken[rule.kind]:
            shown = f"{given[rule.option]}, and {at}.{rule.other} is {given.get(rule.other, 'not given')}"
            yield f"{at}.{rule.option} is {shown}; allowed: {rule.allowed}"


def _value(option: JobOption, text: str | None) -> Any:
    """Return the value of an option, or None if the option is missing or invalid."""
    if text is None or not _fits(option, text):
        return None
    if option.type == "boolean":
        return text == "true"
    return datetime.fromisoformat(text) if option.type == "time" else float(text)


def _fits(option: JobOption, value: str) -> bool:
    return all(_item_fits(option, item) for item in (value.split(",") if option.list else [value]))


def _item_fits(option: JobOption, value: str) -> bool:
    if option.type == "boolean":
        return value in ("true", "false")
    if option.type == "time":
        return _is_time(value)
    if option.type in ("integer", "number"):
        return _is_number(option, value)
    if option.choices:
        return value in option.choices
    return option.pattern is None or re.search(option.pattern, value) is not None


def _is_number(option: JobOption, value: str) -> bool:
    if len(value) > DIGITS_MAX:
        return False
    try:
        found = int(value) if option.type == "integer" else float(value)
    except ValueError:
        return False
    low = -math.inf if option.minimum is None else option.minimum
    high = math.inf if option.maximum is None else option.maximum
    return math.isfinite(found) and low <= found <= high


def _is_time(value: str) -> bool:
    """True if the text is a time with a time zone."""
    try:
        return "T" in value and datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False
