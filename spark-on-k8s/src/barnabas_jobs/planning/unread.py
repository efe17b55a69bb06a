"""Topics that a report could not read."""

from collections.abc import Sequence

import msgspec

from barnabas_jobs.planning.page import paragraph, table


class Unread(msgspec.Struct, frozen=True, kw_only=True):
    """A topic that could not be read, with the reason; `is_gone` is true if the topic was deleted while the job ran."""

    topic: str
    why: str
    is_gone: bool


def unread_parts(unread: Sequence[Unread]) -> list[str]:
    """Return the parts of an HTML page about the topics that could not be read, or an empty list if there are none."""
    if not unread:
        return []
    rows = [(each.topic, each.why) for each in unread]
    return [
        "<h2>Topics that could not be read</h2>",
        paragraph("The figures do not include these topics."),
        table(("topic", "why"), rows),
    ]
