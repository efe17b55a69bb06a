"""The pages of APIs and settings are those that the broker's tables make."""

from pathlib import Path

from documents.reference_pages import apis_page, settings_page

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"


def test_the_page_of_apis_is_the_one_that_the_table_makes() -> None:
    assert (REFERENCE / "apis.md").read_text(encoding="utf-8") == apis_page(), "`make reference` writes it"


def test_the_page_of_settings_is_the_one_that_the_tables_make() -> None:
    assert (REFERENCE / "settings.md").read_text(encoding="utf-8") == settings_page(), "`make reference` writes it"
