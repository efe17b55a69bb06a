"""The table of APIs, compared with Apache Kafka's message definitions."""

import pytest
from message_samples import kafka_class

from barnabas_broker.wire.framing import API_SPECS, ApiSpec


@pytest.mark.parametrize("spec", API_SPECS.values(), ids=lambda spec: spec.name)
def test_the_keys_and_versions_of_apis_agree_with_the_message_definitions(spec: ApiSpec) -> None:
    request = kafka_class(f"{spec.name}Request")._json
    assert request["apiKey"] == spec.key
    lowest, _, highest = str(request["validVersions"]).partition("-")
    assert spec.min_version == int(lowest)
    assert spec.max_version <= int(highest or lowest)
    flexible = str(request["flexibleVersions"])
    assert spec.first_flexible_version == (None if flexible == "none" else int(flexible.rstrip("+")))
