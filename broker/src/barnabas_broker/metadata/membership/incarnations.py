"""The comparison of a restarted broker with its previous incarnation, which shows whether records may be lost."""

from uuid import UUID

from barnabas_broker.metadata.model import BrokerRegistration


def may_lack_records(previous: BrokerRegistration, registration: BrokerRegistration, was_clean: bool) -> bool:
    """True if a restarted broker may have lost records that its previous incarnation acknowledged (KIP-966).

    The result is False only if:
    - all log directories are available;
    - the shutdown was clean, or the machine has not rebooted since the last use of any log directory, so that the page
      cache still has all written data;
    - no log was truncated after a failed sync (`registration.may_lack_records`);
    - the controller has processed the losses of earlier incarnations (`previous.may_lack_records`).

    `log_ends` shows which partitions lack records.
    """
    present = set(registration.directory_ids)
    has_all_dirs = set(previous.directory_ids) <= present
    ran_on = machine_ran_on(previous, registration.boot_id) and not present & cut_dirs(previous, registration.boot_id)
    known = previous.may_lack_records or registration.may_lack_records
    return known or not (was_clean or ran_on) or not has_all_dirs


def machine_ran_on(previous: BrokerRegistration, boot_id: str) -> bool:
    """True if the machine has not rebooted since the previous incarnation started; `boot_id` is the current boot id."""
    return previous.boot_id != "" and previous.boot_id == boot_id


def cut_dirs(previous: BrokerRegistration, boot_id: str) -> frozenset[UUID]:
    """Return the log directories that the previous incarnation could not use, and that were in use before a reboot."""
    return frozenset(each for each, used_in in previous.away_since.items() if used_in != boot_id or not used_in)


def away_since(previous: BrokerRegistration, registration: BrokerRegistration) -> dict[UUID, str]:
    """Return the unavailable log directories of a restarted broker, each with the machine's boot id at its last use."""
    away = [each for each in remembered_dirs(previous, registration) if each not in registration.directory_ids]
    return {each: previous.away_since.get(each, previous.boot_id) for each in away}


def remembered_dirs(previous: BrokerRegistration, registration: BrokerRegistration) -> tuple[UUID, ...]:
    """Return the ids of the new incarnation's log directories, including unavailable log directories."""
    if not registration.dirs_away:
        return registration.directory_ids
    return tuple(dict.fromkeys((*registration.directory_ids, *previous.directory_ids)))
