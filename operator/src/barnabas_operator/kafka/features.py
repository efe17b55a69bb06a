"""Feature levels (KIP-584): read them from brokers, and raise them.

Every function may raise KafkaError.
"""

from typing import Any, Final

from kafka.errors import for_code
from kafka.protocol.admin import UpdateFeaturesRequest
from kafka.protocol.metadata import ApiVersionsRequest

from barnabas_core.errors import ErrorCode
from barnabas_core.metadata_level import METADATA_LEVEL
from barnabas_operator.kafka.step_requests import StepRefused
from barnabas_operator.planning.brokers.cluster_checks import Supported
from barnabas_operator.planning.cluster_state import MetadataVersions

UPGRADE: Final = 1
"""The upgrade type (KIP-584) with which brokers refuse to lower a level."""
BEFORE_LEVELS: Final = Supported(1, 1)
"""The supported levels of a broker that does not report the feature METADATA_LEVEL."""


def metadata_versions(client: Any) -> MetadataVersions | None:
    """Return the finalized metadata version, and the highest version that the responding broker supports.

    Return None if the broker does not report the feature METADATA_LEVEL, which Apache Kafka's brokers do not have.
    """
    found = client.describe_features().get(METADATA_LEVEL, {})
    if not found.keys() >= {"supported", "finalized"}:
        return None
    return MetadataVersions(found["finalized"][1], found["supported"][1])


def supported_metadata_versions(client: Any, broker_id: int) -> Supported:
    """Return the lowest and the highest metadata version that this broker supports."""
    config = client.connections.config
    names = {name: config[name] for name in ("client_software_name", "client_software_version")}
    answer = client.ask(ApiVersionsRequest(**names, min_version=3), broker_id)
    if answer.error_code != ErrorCode.NONE:
        raise for_code(answer.error_code)(f"broker {broker_id} does not report its features")
    supported = {each.name: Supported(each.min_version, each.max_version) for each in answer.supported_features or ()}
    return supported.get(METADATA_LEVEL, BEFORE_LEVELS)


def raise_metadata_version(client: Any, level: int, timeout_s: float) -> StepRefused | None:
    """Finalize this level; return the brokers' refusal, or None.

    A level that is already finalized is no error.
    """
    kind: Any = UpdateFeaturesRequest.FeatureUpdateKey
    update = kind(feature=METADATA_LEVEL, max_version_level=level, allow_downgrade=False, upgrade_type=UPGRADE)
    make: Any = UpdateFeaturesRequest
    request = make(timeout_ms=int(timeout_s * 1000), feature_updates=[update], validate_only=False)
    answer = client.ask(request)
    return StepRefused(answer.error_code, answer.error_message) if answer.error_code != ErrorCode.NONE else None
