"""An audit as an HTML page."""

from collections.abc import Mapping, Sequence
from typing import Final

from barnabas_jobs.planning.logs.problems import KINDS
from barnabas_jobs.planning.logs.replicas import Finding
from barnabas_jobs.planning.page import Bar, bars, bytes_text, page, paragraph, table

ROWS_MAX: Final = 1000


def audit_page(
    about_it: str,
    summary: str,
    bytes_by_broker: Mapping[int, int],
    counts: Mapping[str, int],
    findings: Sequence[Finding],
) -> str:
    """Return the HTML page."""
    parts = [paragraph(summary)]
    if findings:
        kinds = [Bar(kind, count, f"{count:,}", is_over=True) for kind, count in counts.items()]
        rows = [
            (each.kind, each.broker, each.file, _plain(each.position), _plain(each.offset), each.detail)
            for each in findings[:ROWS_MAX]
        ]
        parts += [
            bars("Findings by kind", kinds),
            table(("kind", "meaning"), [(kind, KINDS[kind]) for kind in counts]),
            "<h2>Findings</h2>",
            table(("kind", "broker", "file", "byte", "offset", "what"), rows),
        ]
        if len(findings) > ROWS_MAX:
            parts.append(paragraph(f"{len(findings) - ROWS_MAX:,} more findings are in findings.parquet."))
    parts.append(
        bars("Bytes read", [Bar(f"broker {each}", size, bytes_text(size)) for each, size in bytes_by_broker.items()])
    )
    return page("Audit of log dirs", about_it, *parts)


def _plain(number: int | None) -> str:
    """Return a number without separators, so that readers can search for it."""
    return "" if number is None else str(number)
