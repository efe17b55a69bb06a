"""One incarnation of a broker and the next."""

from uuid import UUID

from barnabas_broker.metadata.model import BrokerRegistration


def may_lack_records(previous: BrokerRegistration, registration: BrokerRegistration, was_clean: bool) -> bool:
    """True if a restarted broker may have lost records that the incarnation before has acknowledged (KIP-966).

    It has lost none if it shut down cleanly, or if the machine ran on, for then written data is in the page cache
    still; in both cases only with all the log directories that it had, and none that was cut while it was away. What an
    earlier incarnation lost and the controller has not dealt with is lost still, and so is what `registration` says
    itself: a log that was cut after a failed sync. The ends of its logs (`log_ends`) show which partitions that
    concerns.
    """
    present = set(registration.directory_ids)
    has_all_dirs = set(previous.directory_ids) <= present
    ran_on = machine_ran_on(previous, registration.boot_id) and not present & cut_dirs(previous, registration.boot_id)
    known = previous.may_lack_records or registration.may_lack_records
    return known or not (was_clean or ran_on) or not has_all_dirs


def machine_ran_on(previous: BrokerRegistration, boot_id: str) -> bool:
    """True if the machine was not booted between an incarnation and the next, which has this boot id."""
    return previous.boot_id != "" and previous.boot_id == boot_id


def cut_dirs(previous: BrokerRegistration, boot_id: str) -> frozenset[UUID]:
    """The directories that were away in the incarnation before, and since whose last use the machine was booted."""
    return frozenset(each for each, used_in in previous.away_since.items() if used_in != boot_id or not used_in)


def away_since(previous: BrokerRegistration, registration: BrokerRegistration) -> dict[UUID, str]:
    """Return for each directory that is away in the next incarnation the boot of the last incarnation that had it."""
    away = [each for each in remembered_dirs(previous, registration) if each not in registration.directory_ids]
    return {each: previous.away_since.get(each, previous.boot_id) for each in away}


def remembered_dirs(previous: BrokerRegistration, registration: BrokerRegistration) -> tuple[UUID, ...]:
    """The ids of the log directories that the next incarnation is to have, those that are away now included."""
    if not registration.dirs_away:
        return registration.directory_ids
    return tuple(dict.fromkeys((*registration.directory_ids, *previous.directory_ids)))
