"""Known mistakes, and what shows each of them: the simulation has to find every one."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Final, NamedTuple

from simulation.compaction_mutants import (
    forgets_a_round_of_compaction_that_a_crash_ended,
    goes_on_with_a_round_after_a_truncation,
    keeps_what_is_left_of_a_compacted_log_that_was_cut,
)
from simulation.epoch_mutants import EPOCH_MUTANTS
from simulation.replication_mutants import (
    acknowledges_before_the_high_watermark,
    advances_with_too_few_in_sync,
    commits_offsets_before_they_are_replicated,
    counts_a_shrink_before_it_is_written,
    elects_a_replica_that_lacks_records,
    elects_from_outside_the_isr,
    followers_forget_the_producers,
    forgets_the_members_in_a_failover,
    joins_the_isr_before_the_epochs_start,
    keeps_its_place_with_a_log_from_a_failed_disk,
    keeps_the_leader_epoch,
    nobody_produces,
    shows_what_is_not_committed,
    takes_any_incarnation_of_a_broker_into_the_isr,
    takes_commits_of_old_generations,
    truncates_to_the_high_watermark,
    trusts_a_disk_that_lost_power,
    writes_without_compare_and_set,
)
from simulation.set_ups import (
    delays_watches_while_topics_are_made_again,
    deposes_leaders_that_learn_it_late,
    initializes_share_states_again,
    loses_power_in_a_truncation,
    maps_keys_until_a_truncation,
    puts_an_older_backup_back,
)
from simulation.settings_mutants import (
    goes_by_the_settings_it_started_with,
    starts_with_the_settings_of_its_file,
    takes_settings_that_contradict,
)
from simulation.share_mutants import SHARE_MUTANTS, SHARE_SEEDS
from simulation.storage_mutants import (
    drops_the_lowest_segment_first,
    forgives_holes,
    lets_a_clean_mark_come_back,
    swaps_a_copy_that_is_not_synced,
    takes_a_failed_sync_for_a_full_disk,
    writes_epochs_without_a_sync,
)
from simulation.transaction_mutants import TRANSACTION_MUTANTS, TRANSACTION_SEEDS
from simulation.version_mutants import drops_what_a_newer_version_wrote, finalizes_what_one_does_not_support


class Mutant(NamedTuple):
    """A mistake, and what shows it (a regular expression): a crash in the mistake itself proves nothing."""

    apply: Callable[[], AbstractContextManager[None]]
    shown_by: str
    workload: str = "replication"


LOST: Final = r"^(lost: |seen and gone: )"
DIFFERENT: Final = r"^(two values at |the replicas of .* differ)"
LEADERS: Final = r": (\d+ led in epoch|it is in the ISR and ends at|its high watermark goes back)"
BEHIND: Final = r": it is in the ISR and ends at"
COMPACTED: Final = r"^compaction: |^the replicas of wild-0 differ: "
SETTINGS: Final = r"^broker settings: b\d+ (shows|has) "
COMMITS: Final = r"^group .*committed|^group members: "

_SHOWN_BY: Final[Mapping[Callable[[], AbstractContextManager[None]], str]] = {
    truncates_to_the_high_watermark: f"{LOST}|{DIFFERENT}|{LEADERS}",
    joins_the_isr_before_the_epochs_start: f"{LOST}|{LEADERS}",
    acknowledges_before_the_high_watermark: f"{LOST}|{DIFFERENT}|{LEADERS}",
    counts_a_shrink_before_it_is_written: f"{LOST}|{LEADERS}",
    commits_offsets_before_they_are_replicated: COMMITS,
    elects_a_replica_that_lacks_records: f"{LOST}|{LEADERS}",
    elects_from_outside_the_isr: f"{LOST}|{LEADERS}",
    writes_without_compare_and_set: r" is written over: ",
    keeps_the_leader_epoch: f"{LOST}|{DIFFERENT}|{LEADERS}",
    shows_what_is_not_committed: rf"^seen and gone: |^two values at |{BEHIND}",
    followers_forget_the_producers: r"^twice or out of order: |OUT_OF_ORDER_SEQUENCE_NUMBER",
    trusts_a_disk_that_lost_power: f"{LOST}|{BEHIND}",
    keeps_its_place_with_a_log_from_a_failed_disk: f"{LOST}|{LEADERS}",
    advances_with_too_few_in_sync: f"{LOST}|{LEADERS}",
    takes_commits_of_old_generations: COMMITS,
    forgets_the_members_in_a_failover: COMMITS,
    takes_any_incarnation_of_a_broker_into_the_isr: f"{LOST}|{LEADERS}",
    takes_a_failed_sync_for_a_full_disk: r" lost power: .* is said to be synced",
    swaps_a_copy_that_is_not_synced: r" lost power: .* is said to be synced",
    writes_epochs_without_a_sync: r" started: .* takes offset \d+ for epoch",
    lets_a_clean_mark_come_back: r" takes /logs\d for shut down cleanly",
    drops_the_lowest_segment_first: r" started: .* has a hole below its recovery point: ",
    forgives_holes: r" started: .* has a hole: ",
    forgets_a_round_of_compaction_that_a_crash_ended: COMPACTED,
    keeps_what_is_left_of_a_compacted_log_that_was_cut: COMPACTED,
    goes_on_with_a_round_after_a_truncation: COMPACTED,
    drops_what_a_newer_version_wrote: r"^what a newer version wrote of .* is gone: ",
    finalizes_what_one_does_not_support: r"^level \d+ of \S+ is finalized, and brokers/\d+ supports ",
    goes_by_the_settings_it_started_with: SETTINGS,
    starts_with_the_settings_of_its_file: SETTINGS,
    takes_settings_that_contradict: r"^broker settings: .* does not refuse ",
    nobody_produces: r"^too little was acknowledged: ",
}

_ALL: Final = [Mutant(apply, shown_by) for apply, shown_by in _SHOWN_BY.items()] + [
    Mutant(apply, shown_by, workload)
    for workload, mutants in (
        ("transactions", TRANSACTION_MUTANTS),
        ("shares", SHARE_MUTANTS),
        *EPOCH_MUTANTS.items(),
    )
    for apply, shown_by in mutants.items()
]
MUTANTS: Final[Mapping[str, Mutant]] = {each.apply.__name__.replace("_", "-"): each for each in _ALL}

SET_UPS: Final[Mapping[str, Callable[[], AbstractContextManager[None]]]] = {
    "counts-an-absent-partition-as-deleted": puts_an_older_backup_back,
    "drops-the-lowest-segment-first": loses_power_in_a_truncation,
    "goes-by-the-tombstone-of-an-earlier-topic": delays_watches_while_topics_are_made_again,
    "goes-on-with-a-round-after-a-truncation": maps_keys_until_a_truncation,
    "initializes-a-state-twice": initializes_share_states_again,
    "takes-the-state-of-deposed-leaders": deposes_leaders_that_learn_it_late,
}
"""Faults that mistakes bring with them. With these alone a broker keeps its promises."""

SOONEST_SEEDS: Final[Mapping[str, int]] = {
    **dict.fromkeys(MUTANTS, 0),
    **TRANSACTION_SEEDS,
    **SHARE_SEEDS,
    "advances-with-too-few-in-sync": 7,
    "answers-before-the-records-are-written": 21,
    "commits-offsets-before-they-are-replicated": 13,
    "counts-a-shrink-before-it-is-written": 7,
    "drops-the-lowest-segment-first": 5,
    "elects-a-replica-that-lacks-records": 9,
    "elects-from-outside-the-isr": 2,
    "followers-forget-the-producers": 3,
    "frees-partitions-before-they-are-revoked": 6,
    "forgets-a-round-of-compaction-that-a-crash-ended": 9,
    "forgets-the-members-in-a-failover": 2,
    "forgives-holes": 9,
    "goes-by-the-settings-it-started-with": 4,
    "goes-on-with-a-round-after-a-truncation": 9,
    "joins-the-isr-before-the-epochs-start": 1,
    "keeps-its-place-with-a-log-from-a-failed-disk": 116,
    "keeps-the-leader-epoch": 1,
    "keeps-what-is-left-of-a-compacted-log-that-was-cut": 11,
    "lets-a-clean-mark-come-back": 73,
    "starts-with-the-settings-of-its-file": 4,
    "swaps-a-copy-that-is-not-synced": 9,
    "takes-a-failed-sync-for-a-full-disk": 35,
    "takes-any-incarnation-of-a-broker-into-the-isr": 9,
    "takes-settings-that-contradict": 4,
    "tells-no-classic-member-to-rejoin": 7,
    "truncates-to-the-high-watermark": 3,
    "trusts-a-disk-that-lost-power": 6,
    "upgrades-without-what-the-members-have": 12,
    "writes-epochs-without-a-sync": 6,
    "writes-without-compare-and-set": 1,
}
"""The first seed that shows the mistake, when this was written: where to begin the search for one.

Stories change with the brokers; whoever finds that a search has become long writes down where it ended.
"""
