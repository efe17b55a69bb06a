"""The choice of topics and groups, by the options of kafka_exporter."""

import re
from typing import NamedTuple, Protocol


class Names(Protocol):
    """The names of a filter, or of a set."""

    def __contains__(self, name: object, /) -> bool: ...


class Filter(NamedTuple):
    """A filter of names: regular expressions that are searched for, so `^` and `$` are the caller's."""

    wanted: re.Pattern[str]
    excluded: re.Pattern[str]

    def __contains__(self, name: object) -> bool:
        text = str(name)
        return self.wanted.search(text) is not None and self.excluded.search(text) is None
