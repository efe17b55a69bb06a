"""The check of the certificates in new configs, before the configs are stored."""

from collections.abc import Iterable, Mapping
from typing import Final

from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.metadata.controller.decisions.alter_configs import ConfigResource, ConfigResourceType
from barnabas_broker.metadata.store.metadata_store import StoreUnavailable
from barnabas_core.config.definitions import InvalidConfig
from barnabas_core.errors import ApiError, ErrorCode

_LISTENER_PREFIX: Final = "listener.name."


async def check_certificates(
    environment: HandlerEnvironment, resource: ConfigResource, overrides: Mapping[str, str], changed: Iterable[str]
) -> None:
    """Raise ApiError if `changed` names a listener setting, and this broker cannot use the certificates in `overrides`.

    Configs of other brokers are not checked, because this broker cannot read the certificate files of other brokers.
    """
    is_own = resource.type is ConfigResourceType.BROKER and resource.name == str(environment.broker_id)
    check, config = environment.check_certificates, environment.config
    if not is_own or check is None or not any(name.startswith(_LISTENER_PREFIX) for name in changed):
        return
    try:
        await check(config.with_usable(overrides, config.cluster_overrides).config)
    except InvalidConfig as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error
    except StoreUnavailable as error:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
