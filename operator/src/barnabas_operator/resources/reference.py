"""Generates the reference page of all fields from the types of the resources.

`python -m barnabas_operator.resources.reference FILE` writes the page.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from barnabas_operator.resources.cluster_kind import KINDS
from barnabas_operator.resources.crd import crd_of
from barnabas_operator.resources.kind import Json, bounds_words, default_words

HEAD: Final = """# Reference

All fields of the resources in `{version}`, as in the CRDs. `kubectl explain cluster.spec.brokers` shows the same texts
(add `--api-version={version}` if another API group has a kind of this name). A field without a default may be left out
unless it is required.
"""
TEMPLATES: Final = """
A *partial object* may have `metadata.labels`, `metadata.annotations`, and in `spec` the fields that a template may set;
see [templates](../how-to/templates.md). The type *labels* has only `metadata.labels` and `metadata.annotations`.
"""
COLUMNS: Final = "| field | type | default | allowed | what it does |\n|---|---|---|---|---|\n"
TITLES: Final = {"spec": "The desired state", "status": "The observed state"}


def reference_text() -> str:
    """Return the page with all fields, in Markdown."""
    definitions = [crd_of(kind)["spec"] for kind in KINDS.values()]
    head = HEAD.format(version=f"{definitions[0]['group']}/{definitions[0]['versions'][0]['name']}")
    return head + TEMPLATES + "".join(_section(each) for each in definitions)


def _section(definition: Json) -> str:
    names, root = definition["names"], definition["versions"][0]["schema"]["openAPIV3Schema"]
    text = (
        f"\n# {names['kind']}\n\n{root['description']} `kubectl get {names['shortNames'][0]}` lists these resources.\n"
    )
    for part, title in TITLES.items():
        rows = "".join(_rows(root["properties"][part], part))
        text += f"\n## {names['kind']}: {part}\n\n{title}.\n\n{COLUMNS}{rows}"
    return text


def _rows(schema: Json, path: str) -> Iterator[str]:
    for name, field in schema.get("properties", {}).items():
        place = f"{path}.{name}"
        default = f"`{words}`" if (words := default_words(field)) else ""
        required = "required" if name in schema.get("required", ()) else default
        cells = (f"`{place}`", _type(field), required, bounds_words(field), _sentence(_description(field)))
        yield f"| {' | '.join(each.replace('|', chr(92) + '|') for each in cells)} |\n"
        if _partial(field) is None:
            yield from _rows(field, place)
            yield from _rows(field.get("items", {}), f"{place}[]")


def _description(field: Json) -> str:
    """Return a field's description without the default and bounds, because the table has other columns for both."""
    described: str = field.get("description", "")
    return described.partition(". Default: ")[0].partition(". Allowed: ")[0]


def _sentence(text: str) -> str:
    return text if text.startswith(("true:", "false:")) else text[:1].upper() + text[1:]


def _type(field: Json) -> str:
    partial = _partial(field)
    if partial is not None:
        return partial
    if field.get("type") == "array":
        return f"list of {_type(field['items'])}"
    if "additionalProperties" in field:
        return f"map of {_type(field['additionalProperties'])}"
    if field.get("x-kubernetes-int-or-string"):
        return "quantity"
    return str(field.get("type", "any"))


def _partial(field: Json) -> str | None:
    """Return the type to show for a field whose value is a partial Kubernetes object, such as a pod; otherwise None."""
    properties = field.get("properties", {})
    if "metadata" in properties and "brokerId" not in properties and "pod" not in properties:
        return "partial object" if "spec" in properties else "labels"
    return None


def main() -> None:
    """Write the reference page of all kinds to the file that the command-line argument names."""
    Path(sys.argv[1]).write_text(reference_text(), encoding="utf-8")


if __name__ == "__main__":
    main()
