"""The check of certificates that the configs of a request name, before the configs are stored."""

from collections.abc import Mapping
from typing import Final

from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.metadata.controller.decisions.alter_configs import ConfigResource, ConfigResourceType
from barnabas_broker.metadata.store.metadata_store import StoreUnavailable
from barnabas_core.config.definitions import InvalidConfig
from barnabas_core.errors import ApiError, ErrorCode

LISTENER_PREFIX: Final = "listener.name."
"""The prefix of the settings of a listener."""


async def check_certificates(
    environment: HandlerEnvironment, resource: ConfigResource, overrides: Mapping[str, str]
) -> None:
    """Raise ApiError if a listener of this broker cannot use the certificates in `overrides`.

    Configs of other brokers are not checked, because this broker cannot read the certificate files of other brokers.
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
