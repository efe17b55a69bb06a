"""Prints what tests on pods measure at once; if E2E_FIGURES names a file, writes a page of it at the end."""

import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

FILE: Final = os.environ.get("E2E_FIGURES", "")
HEAD: Final = """# On pods, {day}

Printed by `{by} E2E_FIGURES={file}`: a Kubernetes of one node, or of three and four where racks are
named, Barnabas by its chart, three brokers with two disks each, or five in three racks, clients outside of the cluster,
all on one machine of {processors} processors ({kernel}).

| what | figure | aim |
|---|---|---|
"""


class Figures:
    """One table for a whole run."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, str, str]] = []

    def tell(self, what: str, figure: str, aim: str = "") -> None:
        """Add a row and print it."""
        print(f"{what}: {figure}" + (f" (aim: {aim})" if aim else ""))
        self._rows.append((what, figure, aim))

    def write(self, file: str = FILE, by: str = "make e2e") -> None:
        """Write the page if a file is named and there is a row; `by` is the command of the run."""
        if file and self._rows:
            head = HEAD.format(
                day=datetime.now(UTC).date(),
                by=by,
                file=file,
                processors=os.cpu_count(),
                kernel=f"{platform.system()} {platform.release()}",
            )
            rows = "".join(f"| {' | '.join(row)} |\n" for row in self._rows)
            Path(file).write_text(head + rows, encoding="utf-8")
