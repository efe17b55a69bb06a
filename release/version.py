"""The version of a release: `pyproject.toml` has it, and a tag of the commit confirms it. Pure."""

import re
from collections.abc import Collection
from typing import Final, NamedTuple

from release.errors import ReleaseError

DECLARED: Final = re.compile(r'^version = "(\d+\.\d+\.\d+)"$', re.MULTILINE)
"""The line of pyproject.toml."""


class Version(NamedTuple):
    """One version in the two notations that package indexes and charts ask for."""

    python: str
    """By PEP 440: of wheel and sdist, and what `barnabas --version` prints."""
    semantic: str
    """By SemVer 2: of chart and images."""

    @property
    def released(self) -> bool:
        """True if the commit has the tag of this version."""
        return "dev" not in self.python


def declared(pyproject: str) -> str:
    """Return the version that pyproject.toml declares."""
    found = DECLARED.search(pyproject)
    if found is None:
        raise ReleaseError('pyproject.toml has no line `version = "MAJOR.MINOR.PATCH"`')
    return found[1]


def version_of(number: str, tags: Collection[str], commits: int) -> Version:
    """Return the version of a commit by its tags and the number of commits up to it.

    Without a tag it is a development version, which every tool sorts before the release.
    """
    versions = sorted(tag for tag in tags if re.fullmatch(r"v\d+\.\d+\.\d+", tag))
    if not versions:
        return Version(f"{number}.dev{commits}", f"{number}-dev.{commits}")
    if versions != [f"v{number}"]:
        raise ReleaseError(
            f"the commit has the tags {versions}, and pyproject.toml the version {number}: make them one"
        )
    return Version(number, number)


def stamped(pyproject: str, version: Version) -> str:
    """Return pyproject.toml with this version."""
    return DECLARED.sub(f'version = "{version.python}"', pyproject, count=1)
