"""ListConfigResources (74), v0 to v1: lists resources that have configs (KIP-1142); v0 lists only client metrics."""

from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.metadata.controller.decisions.alter_configs import ConfigResourceType
from barnabas_broker.wire.messages import ListConfigResourcesRequest, ListConfigResourcesResponse
from barnabas_core.errors import ErrorCode

ResourceResult = ListConfigResourcesResponse.ConfigResource


def handle(
    environment: HandlerEnvironment, context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """List topics, brokers, broker loggers and groups with configs, or those that have a requested resource type.

    A request with an unknown resource type gets the error UNSUPPORTED_VERSION.
    """
    kinds = {int(kind) for kind in ConfigResourceType}
    asked = (
        set(request.resource_types or kinds) if context.api_version >= 1 else {int(ConfigResourceType.CLIENT_METRICS)}
    )
    if not asked <= kinds:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    brokers = [str(broker) for broker in environment.image.brokers]
    names = {
        ConfigResourceType.TOPIC: list(environment.image.topics),
        ConfigResourceType.BROKER: brokers,
        ConfigResourceType.BROKER_LOGGER: brokers,
        ConfigResourceType.GROUP: list(environment.image.group_configs),
    }
    resources = [
        ResourceResult(resource_name=name, resource_type=kind)
        for kind, of_kind in names.items()
        if kind in asked
        for name in of_kind
    ]
    return ListConfigResourcesResponse(config_resources=resources)
