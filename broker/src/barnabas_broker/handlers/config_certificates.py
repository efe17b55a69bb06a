"""Check the certificates that the configs of a request name, before they get to the metadata."""

from collections.abc import Mapping
from typing import Final

from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.metadata.controller.decisions.alter_configs import ConfigResource, ConfigResourceType
from barnabas_broker.metadata.store.metadata_store import StoreUnavailable
from barnabas_core.config.definitions import InvalidConfig
from barnabas_core.errors import ApiError, ErrorCode

LISTENER_PREFIX: Final = "listener.name."
"""The beginning of the names of all settings of one listener."""


async def check_certificates(
    environment: HandlerEnvironment, resource: ConfigResource, overrides: Mapping[str, str]
) -> None:
    """Raise ApiError if a listener of this broker cannot use the certificates that its new overrides name.

    Other brokers are not checked, because their files can be read only there.
    """
    is_own = resource.type is ConfigResourceType.BROKER and resource.name == str(environment.broker_id)
    check, config = environment.check_certificates, environment.config
    if not is_own or check is None:
        return
    try:
        await check(config.with_usable(overrides, config.cluster_overrides).config)
    except InvalidConfig as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error
    except StoreUnavailable as error:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
