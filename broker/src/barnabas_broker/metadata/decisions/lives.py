"""One life of a broker and the next."""

from barnabas_broker.metadata.model import BrokerRegistration


def may_lack_records(previous: BrokerRegistration, registration: BrokerRegistration, was_clean: bool) -> bool:
    """Whether a broker that starts anew may have lost records that the life before has acknowledged (KIP-966).

    It has lost none if it shut down cleanly, or if the machine ran on, for then what was written is in the page cache
    still; in both cases only with all the log directories that it had. What a life before lost and the controller has
    not dealt with is lost still.
    """
    machine_ran_on = previous.boot_id != "" and previous.boot_id == registration.boot_id
    has_all_dirs = set(previous.directory_ids) <= set(registration.directory_ids)
    return previous.may_lack_records or not (was_clean or machine_ran_on) or not has_all_dirs
