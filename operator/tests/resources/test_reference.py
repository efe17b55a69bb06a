"""The reference describes every field, with its default."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from barnabas_operator.resources.cluster_kind import KINDS
from barnabas_operator.resources.crd import crd_of
from barnabas_operator.resources.kind import Kind, with_words
from barnabas_operator.resources.reference import reference_text

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "fields.md"


def fields(schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, field in schema.get("properties", {}).items():
        yield f"{path}{name}", field
        yield from fields(field, f"{path}{name}.")
        yield from fields(field.get("items", {}), f"{path}{name}[].")


def own_words(field: Mapping[str, Any]) -> str:
    """Return the description, or nothing if it has only bounds and a default."""
    described: str = field.get("description", "")
    return "" if described.startswith(("Default: ", "default: ", "Allowed: ", "allowed: ")) else described


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_every_field_has_a_description_and_its_default(kind: Kind) -> None:
    root = crd_of(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    told = dict(fields({"properties": {part: root["properties"][part] for part in ("spec", "status")}}))
    assert [path for path, field in told.items() if own_words(field) == ""] == []
    filled_in = {path: field for path, field in told.items() if field.get("default") not in (None, {})}
    assert len(filled_in) > 3
    assert [path for path, field in filled_in.items() if "Default: " not in field["description"]] == []


def test_the_reference_page_is_up_to_date_with_the_types() -> None:
    assert PAGE.read_text() == reference_text(), "run make crds to write the page"


WORDS: dict[str, tuple[dict[str, Any], str]] = {
    "a default": ({"description": "how long", "default": 5}, "how long. Default: 5."),
    "a default and bounds": (
        {"description": "how many", "type": "integer", "default": 1, "minimum": 1, "maximum": 9},
        "how many. Default: 1; allowed: 1 to 9.",
    ),
    "no upper bound": ({"description": "how many", "type": "integer", "minimum": 1}, "how many. Allowed: 1 or more."),
    "a list": (
        {"description": "which", "type": "array", "default": [{"id": 0}], "minItems": 1, "maxItems": 3},
        "which. Default: [{id: 0}]; allowed: 1 to 3 entries.",
    ),
    "nothing to tell": ({"description": "what", "default": {}}, "what"),
}


@pytest.mark.parametrize("name", WORDS)
def test_descriptions_contain_the_defaults_and_bounds_that_kubectl_explain_omits(name: str) -> None:
    schema, described = WORDS[name]
    assert with_words(schema)["description"] == described
