"""The result of a job, and the termination message of its driver's pod, which Kubernetes limits to 4,096 bytes."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

BYTES_MAX: Final = 4096
FINDINGS_BYTES_MAX: Final = BYTES_MAX // 2


def summed(read: str, findings: Sequence[str]) -> str:
    """Return a sentence that says what the job has read, what the first finding is, and how many more there are.

    A finding is a sentence about a problem that the job has found.
    """
    if not findings:
        return f"{read}; no problem was found"
    more = f" (and {len(findings) - 1:,} more)" if len(findings) > 1 else ""
    return f"{read}; {findings[0]}{more}"


class JobResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a job. A job that can find problems has its own `fine`, and a `summary` for its message."""

    @property
    def fine(self) -> bool:
        """True if the job found no problem: always, unless the job says otherwise. A run that fails has no result."""
        return True


class Ending(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The exit code of a job, a message in one line, the result, and the table that is the ledger, if there is one."""

    exit: int
    message: str
    result: dict[str, Any] | None = None
    ledger: str | None = None

    def shortened(self) -> bytes:
        """Return the termination message as JSON of at most BYTES_MAX bytes.

        If the JSON is too long, shorten the list `findings` in `result` to half of BYTES_MAX. If the JSON is still too
        long, leave out in this order: the largest lists and objects of `result`, the whole `result`, the end of
        `message`, and `ledger`.
        """
        ending = self
        while len(written := msgspec.json.encode(ending)) > BYTES_MAX:
            over = len(written) - BYTES_MAX
            ending = ending._with_fewer_findings() or ending._without_largest() or ending._with_less_to_say(over)
        return written

    def _with_fewer_findings(self) -> "Ending | None":
        """Return a copy with only as many findings as fit into half of BYTES_MAX, or None if all findings fit."""
        found = (self.result or {}).get("findings")
        if not isinstance(found, list) or len(msgspec.json.encode(found)) <= FINDINGS_BYTES_MAX:
            return None
        kept = list[Any]()
        for each in found:
            if len(msgspec.json.encode([*kept, each])) > FINDINGS_BYTES_MAX - 100:
                break
            kept.append(each)
        more = f"{len(found) - len(kept)} more findings; see the report, or the log of the pod"
        return msgspec.structs.replace(self, result={**(self.result or {}), "findings": [*kept, more]})

    def _without_largest(self) -> "Ending | None":
        """Return a copy in which the largest list or object of `result` is replaced by its number of items.

        The list `findings` is not replaced. Return None if `result` has no other list or object.
        """
        parts = {
            name: value
            for name, value in (self.result or {}).items()
            if isinstance(value, list | dict) and name != "findings"
        }
        if not parts:
            return None
        largest = max(parts, key=lambda name: len(msgspec.json.encode(parts[name])))
        count = f"{len(parts[largest])} items; see the log of the pod"
        return msgspec.structs.replace(self, result={**(self.result or {}), largest: count})

    def _with_less_to_say(self, bytes_over: int) -> "Ending":
        """Return a smaller copy of an ending whose JSON is `bytes_over` bytes too long.

        Remove `result`. If there is no `result`, shorten `message`. If `message` has at most one character, remove
        `ledger`.

        `message` loses `bytes_over` / 6 characters (at least one), because a character takes up to 6 bytes in JSON. If
        that is not enough, `shortened` calls this function again.
        """
        if self.result is not None:
            return msgspec.structs.replace(self, result=None)
        if len(self.message) <= 1:
            return msgspec.structs.replace(self, ledger=None)
        kept = max(0, len(self.message) - max(1, bytes_over // 6) - 1)
        return msgspec.structs.replace(self, message=self.message[:kept] + "\N{HORIZONTAL ELLIPSIS}")
