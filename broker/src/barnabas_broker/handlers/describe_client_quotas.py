"""DescribeClientQuotas (48), v0 to v1: no quotas, as from a Kafka where nobody has set any (KIP-546)."""

from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.wire.messages import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from barnabas_core.errors import ErrorCode


def handle(
    environment: HandlerEnvironment, context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """Answer an empty list, whatever the filter."""
    return DescribeClientQuotasResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, error_message=None, entries=[])
