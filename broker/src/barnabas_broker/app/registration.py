"""The registration of a broker, without the fields that `Membership` adds."""

from uuid import UUID

from barnabas_broker.metadata.features import SUPPORTED
from barnabas_broker.metadata.membership.membership import cut_dirs, machine_ran_on
from barnabas_broker.metadata.model import BrokerRegistration
from barnabas_broker.storage.disk.checkpoints import NO_EPOCH, NO_INCARNATION, LastIncarnation
from barnabas_broker.storage.log_dirs.log_manager import LogManager
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.config.listeners import Endpoint


def registration_of(
    config: BrokerConfig, logs: LogManager, incarnation_id: UUID, listeners: tuple[Endpoint, ...], boot_id: str
) -> BrokerRegistration:
    """Return the registration of this incarnation of a broker."""
    online = [each for each in logs.log_dirs if each.is_online]
    return BrokerRegistration(
        broker_id=config.broker_id,
        incarnation_id=incarnation_id,
        listeners=listeners,
        rack=config.broker_rack,
        log_dirs=config.log_dirs,
        directory_ids=tuple(each.directory_id for each in online if each.directory_id is not None),
        boot_id=boot_id,
        may_lack_records=any(each.kept.cut for each in online),
        features={name: (levels.lowest, levels.highest) for name, levels in SUPPORTED.items()},
        dirs_away=len(online) < len(logs.log_dirs),
        inter_broker_listener=config.listeners.inter_broker,
    )


def last_incarnation(registered: BrokerRegistration | None, boot_id: str) -> LastIncarnation:
    """Return what the last registration of this broker says about the broker's previous incarnation.

    A clean shutdown writes a file with the broker epoch into each log dir. The result has the broker epochs that prove
    a clean shutdown of the previous incarnation. NO_EPOCH is one of them if the registration has no features, because
    an old broker version wrote the file without a broker epoch.
    """
    if registered is None:
        return NO_INCARNATION
    unnamed = () if registered.features else (NO_EPOCH,)
    epochs = (registered.broker_epoch, *unnamed)
    return LastIncarnation(epochs, machine_ran_on(registered, boot_id), cut_dirs(registered, boot_id))
