"""The states of a classic group, each with the requests that bring a group into it."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from matrix.group_world import GroupWorld


def _deleted(world: GroupWorld) -> None:
    _empty(world)
    answer = world.broker.ask("DeleteGroups", 2, {"groups_names": [world.group]})
    assert answer.results[0].error_code == 0


def _committed_and_open(world: GroupWorld) -> None:
    world.commit()
    world.commit_in_transaction()


def _empty(world: GroupWorld) -> None:
    world.learn("A", world.join("A"))
    a = world.sync("A", {"A": b"of A"}).answer()
    assert a.error_code == 0
    world.commit(**world.identity("A"), generation_id_or_member_epoch=world.generation)
    world.leave("A")
    world.generation += 1


def _half_synced(world: GroupWorld) -> None:
    world.form()
    world.wait_with("SyncGroup of B", world.sync("B"))


def _stable(world: GroupWorld, *, static: bool = False) -> None:
    world.form(static=static)
    world.stabilize()


def _stable_pending(world: GroupWorld) -> None:
    _stable(world)
    world.give_pending_id()


def _preparing(world: GroupWorld, *, static: bool = False) -> None:
    _stable(world, static=static)
    world.wait_with("JoinGroup of A", world.join("A"))


STATES: Final[Mapping[str, Callable[[GroupWorld], None]]] = {
    "unknown": lambda world: None,
    "unknown, open transaction": GroupWorld.commit_in_transaction,
    "deleted": _deleted,
    "offsets only": GroupWorld.commit,
    "offsets only, open transaction": _committed_and_open,
    "Empty": _empty,
    "pending id": GroupWorld.give_pending_id,
    "Completing": GroupWorld.form,
    "Completing, B waits": _half_synced,
    "Stable": _stable,
    "Stable, pending id": _stable_pending,
    "Preparing": _preparing,
    "static Completing": partial(GroupWorld.form, static=True),
    "static Stable": partial(_stable, static=True),
    "static Preparing": partial(_preparing, static=True),
}
WITH_PENDING_ID: Final = frozenset({"pending id", "Stable, pending id"})
STATIC: Final = frozenset(each for each in STATES if each.startswith("static"))
WITH_MEMBERS: Final = STATIC | {"Completing", "Completing, B waits", "Stable", "Stable, pending id", "Preparing"}
OF_OFFSETS_ONLY: Final = frozenset({"unknown, open transaction", "deleted", "offsets only, open transaction"})
"""States in which members do nothing else than in the state before."""
