"""The previous incarnation of a broker, as its registration describes it."""

from uuid import UUID

import msgspec
import pytest

from barnabas_broker.app.node import last_incarnation
from barnabas_broker.metadata.model import SUPPORTED, BrokerRegistration
from barnabas_broker.storage.disk.checkpoints import NO_EPOCH, NO_INCARNATION

AWAY = UUID(int=5)
FEATURES = {name: (levels.lowest, levels.highest) for name, levels in SUPPORTED.items()}


def registered(boot_id: str, features: dict[str, tuple[int, int]]) -> BrokerRegistration:
    return BrokerRegistration(1, UUID(int=1), (), broker_epoch=7, boot_id=boot_id, features=features)


def test_a_clean_mark_without_an_epoch_counts_after_an_older_version() -> None:
    assert last_incarnation(registered("boot 1", {}), "boot 2").mark_epochs == (7, NO_EPOCH)
    assert last_incarnation(registered("boot 1", FEATURES), "boot 2").mark_epochs == (7,)


@pytest.mark.parametrize(("before", "now", "ran_on"), [("a", "a", True), ("a", "b", False), ("", "", False)])
def test_the_machine_was_not_rebooted_if_its_boot_id_is_the_same(before: str, now: str, ran_on: bool) -> None:
    assert last_incarnation(registered(before, FEATURES), now).machine_ran_on is ran_on


@pytest.mark.parametrize(("used_in", "is_cut"), [("boot 1", True), ("boot 2", False), ("", True)])
def test_an_offline_dir_counts_as_cut_after_a_reboot_since_its_last_use(used_in: str, is_cut: bool) -> None:
    before = msgspec.structs.replace(registered("boot 2", FEATURES), away_since={AWAY: used_in})
    assert last_incarnation(before, "boot 2").cut_dirs == ({AWAY} if is_cut else set())


def test_an_unregistered_broker_has_no_previous_incarnation() -> None:
    assert last_incarnation(None, "boot 1") == NO_INCARNATION
