"""The regular expressions of clients, which RE2 matches against whole names in time proportional to their length.

Kafka uses RE2/J, which has the same syntax. Python's `re` backtracks, so a client's expression could block the broker
for ever. The limits below bound what a single match takes: at most about 10 ms and 256 KiB.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from barnabas_core.loop_turns import InSteps

if TYPE_CHECKING:
    import re2

TEXT_CHARS_MAX: Final = 4096
PROGRAM_MAX: Final = 2000
"""The maximum number of instructions of a compiled expression; `.` takes eight, and a character one."""
MEMORY_BYTES: Final = 256 * 1024
"""The memory that RE2 may use for one expression, most of it for states that it has met while matching."""
NAME_CHARS_MAX: Final = 256
"""The maximum length of a name that can match; a topic's name has at most 249 characters."""
NAMES_A_STEP: Final = 100
RANGE_BYTES: Final = 16
"""The length of the bounds of the names that an expression may match: that of most prefixes of names."""
_ALL_NAMES: Final = (b"", b"\xff")
"""The bounds of all names: no text in UTF-8 has a byte of 255."""


class NamePattern:
    """A regular expression that matches whole names. ValueError says why an expression is not allowed."""

    __slots__ = ("_compiled", "_highest", "_lowest", "text")

    def __init__(self, text: str) -> None:
        if len(text) > TEXT_CHARS_MAX:
            raise ValueError(f"it has {len(text)} characters; {TEXT_CHARS_MAX} allowed")
        import re2  # It takes 2.5 MB, and most brokers never meet an expression.

        try:
            self._compiled = re2.compile(text, _limited(re2.Options()))
        except re2.error as error:
            reason = error.args[0]
            raise ValueError(reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)) from None
        finally:
            # The module would keep the last 128 expressions of all clients.
            re2.purge()
        if self._compiled.programsize > PROGRAM_MAX:
            raise ValueError(f"it has {self._compiled.programsize} instructions for RE2; {PROGRAM_MAX} allowed")
        # Most expressions begin with a prefix of few names, and to compare takes a twentieth of the time of a match.
        try:
            self._lowest, self._highest = self._compiled.possiblematchrange(RANGE_BYTES)
        except re2.error:
            self._lowest, self._highest = _ALL_NAMES
        self.text = text

    def fits(self, name: str) -> bool:
        """True if the whole name matches; a name of more than NAME_CHARS_MAX characters never does."""
        if len(name) > NAME_CHARS_MAX:
            return False
        encoded = name.encode()
        return self._lowest <= encoded <= self._highest and self._compiled.fullmatch(encoded) is not None

    def fitting(self, names: Iterable[str]) -> InSteps[list[str]]:
        """Return the names that match, in steps of NAMES_A_STEP names."""
        found = []
        for number, name in enumerate(names, start=1):
            if self.fits(name):
                found.append(name)
            if number % NAMES_A_STEP == 0:
                yield 0
        return found


def _limited(options: "re2.Options") -> "re2.Options":
    options.max_mem = MEMORY_BYTES
    options.never_capture = True
    options.log_errors = False
    return options
