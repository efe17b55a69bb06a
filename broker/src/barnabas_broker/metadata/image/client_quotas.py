"""The quotas of clients as the image has them."""

from barnabas_broker.metadata.client_quotas import AllQuotas
from barnabas_broker.metadata.documents import CLIENT_QUOTAS_KEY
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import ClientQuotasDocument


def client_quotas(image: MetadataImage) -> AllQuotas:
    """Return the quotas of each entity that has any."""
    document = image.document(CLIENT_QUOTAS_KEY)
    if not isinstance(document, ClientQuotasDocument):
        return {}
    return {tuple(sorted(each.entity.items(), key=lambda part: part[0])): each.quotas for each in document.entities}
