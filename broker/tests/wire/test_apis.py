"""The table of APIs, held against kafka-python's copy of Kafka's message definitions."""

import importlib

import pytest

from barnabas_broker.wire.apis import API_SPECS, ApiSpec

NAMES = ("kafka.protocol.producer", "kafka.protocol.consumer", "kafka.protocol.metadata", "kafka.protocol.admin")
MODULES = [importlib.import_module(name) for name in (*NAMES, "own_messages")]


def definition(name: str) -> dict[str, object]:
    for module in MODULES:
        found = getattr(module, name, None)
        if found is not None:
            return dict(found._json)
    raise LookupError(name)


@pytest.mark.parametrize("spec", API_SPECS.values(), ids=lambda spec: spec.name)
def test_key_range_and_first_flexible_version_are_those_of_the_message_definition(spec: ApiSpec) -> None:
    request = definition(f"{spec.name}Request")
    assert request["apiKey"] == spec.key
    lowest, _, highest = str(request["validVersions"]).partition("-")
    assert spec.min_version == int(lowest)
    assert spec.max_version <= int(highest or lowest)
    flexible = str(request["flexibleVersions"])
    assert spec.first_flexible_version == (None if flexible == "none" else int(flexible.rstrip("+")))
