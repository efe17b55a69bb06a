"""Versions made from tags, and the notes of a release."""

import pytest

from release.errors import ReleaseError
from release.notes import notes
from release.version import Version, declared, stamped, version_of

CHANGES = (
    "# Changelog\n\n## [Unreleased]\n\n- Later.\n\n## [0.2.0] - 2027-01-05\n\n### Added\n- Now.\n\n## 0.1.0\n\nFirst.\n"
)


def test_a_commit_with_a_tag_has_the_declared_version() -> None:
    assert version_of(declared('version = "0.2.0"\n'), ["latest", "v0.2.0"], 7) == ("0.2.0", "0.2.0")


def test_a_commit_without_a_tag_has_a_development_version() -> None:
    version = version_of("0.2.0", [], 7)
    assert version == ("0.2.0.dev7", "0.2.0-dev.7")
    assert stamped('[project]\nversion = "0.2.0"\n', version) == '[project]\nversion = "0.2.0.dev7"\n'


def test_a_tag_that_differs_from_the_declared_version_is_refused() -> None:
    with pytest.raises(ReleaseError, match=r"v0\.3\.0.*version 0\.2\.0"):
        version_of("0.2.0", ["v0.3.0"], 7)


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (Version("0.2.0", "0.2.0"), "# Barnabas 0.2.0\n\n### Added\n- Now.\n"),
        (Version("0.1.0", "0.1.0"), "# Barnabas 0.1.0\n\nFirst.\n"),
        (Version("0.3.0.dev7", "0.3.0-dev.7"), "# Barnabas 0.3.0-dev.7\n\n- Later.\n"),
    ],
)
def test_the_notes_are_the_changelog_section_of_the_version(version: Version, said: str) -> None:
    assert notes(CHANGES, version) == said


def test_a_version_without_a_changelog_section_is_refused() -> None:
    with pytest.raises(ReleaseError, match=r"## \[0\.4\.0\]"):
        notes(CHANGES, Version("0.4.0", "0.4.0"))
