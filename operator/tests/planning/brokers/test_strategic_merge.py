"""The merge of a template over an object of the operator."""

from typing import Any

import pytest

from barnabas_operator.planning.brokers.templates import merged

OWN = {
    "spec": {
        "replicas": 3,
        "ports": [{"name": "a", "port": 1, "protocol": "TCP"}, {"name": "b", "port": 2, "protocol": "TCP"}],
        "context": {"user": 1, "group": {"id": 2}},
        "ranges": ["10.0.0.0/8"],
    }
}

MERGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nothing": ({}, {}),
    "a field of another value": ({"replicas": 5}, {"replicas": 5}),
    "a field more": ({"class": "x"}, {"class": "x"}),
    "a field of a mapping": ({"context": {"user": 7}}, {"context": {"user": 7, "group": {"id": 2}}}),
    "a mapping instead": ({"context": {"$patch": "replace", "user": 7}}, {"context": {"user": 7}}),
    "a single value away": ({"replicas": {"$patch": "delete"}}, {"replicas": None}),
    "a mapping away": ({"context": {"$patch": "delete"}}, {"context": None}),
    "an inner mapping away": ({"context": {"group": {"$patch": "delete"}}}, {"context": {"user": 1}}),
    "another list": ({"ranges": ["192.168.0.0/16"]}, {"ranges": ["192.168.0.0/16"]}),
    "an entry of a keyed list, its key by half": (
        {"ports": [{"port": 2, "nodePort": 9}]},
        {"ports": [OWN["spec"]["ports"][0], {"name": "b", "port": 2, "protocol": "TCP", "nodePort": 9}]},  # type: ignore[index]
    ),
    "an entry more": (
        {"ports": [{"port": 2, "protocol": "UDP"}]},
        {"ports": [*OWN["spec"]["ports"], {"port": 2, "protocol": "UDP"}]},  # type: ignore[misc]
    ),
    "an entry away": ({"ports": [{"port": 1, "$patch": "delete"}]}, {"ports": [OWN["spec"]["ports"][1]]}),  # type: ignore[index]
    "other entries": ({"ports": [{"$patch": "replace"}, {"port": 3}]}, {"ports": [{"port": 3}]}),
    "directives in what is new": ({"more": {"$patch": "replace", "x": [{"y": 1}]}}, {"more": {"x": [{"y": 1}]}}),
}


@pytest.mark.parametrize("name", MERGES)
def test_a_template_changes_what_it_names_and_nothing_else(name: str) -> None:
    patch, changed = MERGES[name]
    expected = {field: value for field, value in {**OWN["spec"], **changed}.items() if value is not None}
    before = repr(OWN)
    assert merged(OWN, {"spec": patch}) == {"spec": expected}
    assert repr(OWN) == before, "the original object is not changed"
