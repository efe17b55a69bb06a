"""The choice of topics and groups, by kafka_exporter's options."""

import re
from typing import NamedTuple, Protocol


class Names(Protocol):
    """The wanted names: a Filter with regular expressions, or a set of exact names."""

    def __contains__(self, name: object, /) -> bool: ...


class Filter(NamedTuple):
    """A filter of names by regular expressions, which may match anywhere in a name."""

    wanted: re.Pattern[str]
    excluded: re.Pattern[str]

    def __contains__(self, name: object) -> bool:
        text = str(name)
        return self.wanted.search(text) is not None and self.excluded.search(text) is None
