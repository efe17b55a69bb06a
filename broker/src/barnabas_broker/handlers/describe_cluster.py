"""DescribeCluster (60), v0 to v2: the cluster id, the controller and the brokers.

A v1 request has an endpoint type; only brokers are allowed, because controllers have no addresses of their own. A v2
request may include fenced brokers (KIP-1073).
"""

from typing import Final

from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.client_rights import cluster_operations
from barnabas_broker.handlers.encoded_topics import NOT_ASKED
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.wire.messages import DescribeClusterRequest, DescribeClusterResponse
from barnabas_core.errors import ErrorCode

BROKER_ENDPOINTS: Final = 1


def handle(
    environment: HandlerEnvironment, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """Describe the cluster; the error is UNSUPPORTED_ENDPOINT_TYPE for the endpoints of controllers (KIP-919)."""
    asked = request.include_cluster_authorized_operations
    if context.api_version >= 1 and request.endpoint_type != BROKER_ENDPOINTS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"endpoint type {request.endpoint_type} is invalid; allowed is {BROKER_ENDPOINTS} (brokers)",
            cluster_id=environment.image.cluster_id,
        )
    return DescribeClusterResponse(
        error_message=None,
        endpoint_type=BROKER_ENDPOINTS,
        cluster_id=environment.image.cluster_id,
        controller_id=environment.controller_id,
        brokers=[
            DescribeClusterResponse.DescribeClusterBroker(
                broker_id=node.broker_id, host=address.host, port=address.port, rack=node.rack, is_fenced=node.fenced
            )
            for node, address in environment.nodes(
                context.client.listener_name, with_fenced=request.include_fenced_brokers
            )
        ],
        authorized_operations=cluster_operations(environment, context.client) if asked else set(NOT_ASKED),
    )
