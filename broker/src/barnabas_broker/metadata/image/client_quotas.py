"""The client quotas in the metadata image."""

from barnabas_broker.metadata.client_quotas import AllQuotas
from barnabas_broker.metadata.documents import CLIENT_QUOTAS_KEY
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import ClientQuotasDocument


def client_quotas(image: MetadataImage) -> AllQuotas:
    """Return the quotas by entity."""
    document = image.document(CLIENT_QUOTAS_KEY)
    if not isinstance(document, ClientQuotasDocument):
        return {}
    return {tuple(sorted(each.entity.items(), key=lambda part: part[0])): each.quotas for each in document.entities}
