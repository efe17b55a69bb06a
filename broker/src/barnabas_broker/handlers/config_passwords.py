"""The encryption of the passwords in new configs, before the configs are stored."""

from collections.abc import Mapping

from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.metadata.controller.decisions.alter_configs import ConfigResource, ConfigResourceType
from barnabas_broker.metadata.store.metadata_store import StoreUnavailable
from barnabas_core.errors import ApiError, ErrorCode


async def sealed(
    environment: HandlerEnvironment, resource: ConfigResource, configs: Mapping[str, str | None]
) -> Mapping[str, str | None]:
    """Return the configs; encrypt the passwords if `resource` is a broker.

    Raises ApiError if the encryption key cannot be read.
    """
    if resource.type is not ConfigResourceType.BROKER or environment.passwords is None:
        return configs
    try:
        return await environment.passwords.sealed(resource.name, configs)
    except StoreUnavailable as error:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
