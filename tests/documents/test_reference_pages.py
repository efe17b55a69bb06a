"""The reference pages of APIs and settings match the broker's tables."""

from pathlib import Path

from documents.reference_pages import apis_page, settings_page

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"


def test_the_page_of_apis_matches_the_table() -> None:
    assert (REFERENCE / "apis.md").read_text(encoding="utf-8") == apis_page(), "`make reference` writes it"


def test_the_page_of_settings_matches_the_tables() -> None:
    assert (REFERENCE / "settings.md").read_text(encoding="utf-8") == settings_page(), "`make reference` writes it"
