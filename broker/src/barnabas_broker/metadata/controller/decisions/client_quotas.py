"""The decision on AlterClientQuotas."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from barnabas_broker.metadata.client_quotas import QuotaChange, QuotaEntity, altered, by_entity
from barnabas_broker.metadata.documents import AnyDocument, encode
from barnabas_broker.metadata.model import ClientQuotasDocument, EntityQuotas
from barnabas_core.errors import ApiError, ErrorCode

BYTES_MAX: Final = 768 * 1024
"""The largest size of the quotas document, so that the document fits into a Kubernetes object."""


def decide_client_quotas(
    known: AnyDocument | None, changes: Mapping[QuotaEntity, Sequence[QuotaChange]]
) -> tuple[ClientQuotasDocument, dict[QuotaEntity, ApiError]]:
    """Return the changed quotas, and an error for each entity whose change is refused.

    If all quotas together become too large, every change is refused.
    """
    before = known if isinstance(known, ClientQuotasDocument) else ClientQuotasDocument(entities=())
    found = by_entity(before)
    failures: dict[QuotaEntity, ApiError] = {}
    for entity, wanted in changes.items():
        held = found.get(entity, EntityQuotas(entity=dict(entity), quotas={}))
        try:
            quotas = altered(held.quotas, entity, wanted)
        except ApiError as error:
            failures[entity] = error
            continue
        if quotas:
            found[entity] = msgspec.structs.replace(held, quotas=dict(quotas))
        else:
            found.pop(entity, None)
    after = msgspec.structs.replace(before, entities=tuple(found.values()))
    size = len(encode(after))
    if size <= max(BYTES_MAX, len(encode(before))):
        return after, failures
    message = (
        f"all quotas together would take {size} bytes, but at most {BYTES_MAX} are allowed: use quotas of default "
        "entities instead of quotas for single names"
    )
    return before, dict.fromkeys(changes, ApiError(ErrorCode.INVALID_REQUEST, message)) | failures
