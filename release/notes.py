"""Release notes: the section of `CHANGELOG.md` about one version. Pure."""

import re
from typing import Final

from release.errors import ReleaseError
from release.version import Version

UNRELEASED: Final = "Unreleased"
HEADING: Final = re.compile(r"^## (?:\[(?P<bracketed>[^\]]+)\]|(?P<bare>\S+)).*$", re.MULTILINE)


def notes(changelog: str, version: Version) -> str:
    """Return what the changelog says of a release, or of what is unreleased for a development version."""
    wanted = version.semantic if version.released else UNRELEASED
    headings = list(HEADING.finditer(changelog))
    for heading, following in zip(headings, [*headings[1:], None], strict=True):
        if wanted == (heading["bracketed"] or heading["bare"]):
            end = len(changelog) if following is None else following.start()
            return f"# Barnabas {version.semantic}\n\n{changelog[heading.end() : end].strip()}\n"
    raise ReleaseError(f"CHANGELOG.md has no section `## [{wanted}]`: write it before the release")
