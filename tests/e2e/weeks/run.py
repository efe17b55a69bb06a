"""Runs the actions one after the other, and records what clients saw of each."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import KafkaException

from e2e.pods.figures import Figures
from e2e.pods.providers import Cluster
from e2e.weeks.action import Down
from e2e.weeks.deck import ACTIONS, Plan
from e2e.weeks.site import Site
from e2e.weeks.tenant import Tenant

Say = Callable[[str], None]


class Stalls(NamedTuple):
    """The longest time without an acknowledgement, of any record, and without records, in seconds."""

    writers_s: float
    readers_s: float

    def __str__(self) -> str:
        return f"writers {self.writers_s:.1f} s, readers {self.readers_s:.1f} s"


class Turn(NamedTuple):
    """An action that is over, and the time until all was as declared again and clients went on."""

    action: str
    whole_s: float
    stalls: Stalls
    stalls_of_others: Stalls


NO_STALLS: Final = Stalls(0.0, 0.0)


@dataclass
class Report:
    """The results of a run."""

    turns: list[Turn] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    acknowledged: int = 0

    def tell(self, figures: Figures) -> None:
        """Add a row for each action that was done, in the order of the table."""
        for name, action in ACTIONS.items():
            turns = [turn for turn in self.turns if turn.action == name]
            if turns:
                figures.tell(name, _figure(turns), action.aim)
        lost = sum("lost" in problem for problem in self.problems)
        figures.tell(f"{len(self.turns)} actions", f"{self.acknowledged} records acknowledged, {lost} lost", "0 lost")


def first_weeks(cluster: Cluster, folder: Path, plan: Plan, say: Say) -> Report:
    """Do all actions of a plan on a Kubernetes of its own; stop after the first that does not end."""
    report, site = Report(), Site(cluster, folder)
    try:
        site.install()
        say("installed")
        _act(site, plan, say, report)
    except (AssertionError, KafkaException) as broken:
        say(site.state())
        report.problems.append(f"never over: {broken}")
    finally:
        site.close()
    return report


def _act(site: Site, plan: Plan, say: Say, report: Report) -> None:
    for number, name in enumerate(plan.names(), 1):
        chance = random.Random(f"{plan.seed}/{number}")
        tenant = chance.choice(site.tenants)
        say(f"{number} of {plan.actions}: {name}, {tenant.name}")
        report.turns.append(_turn(site, tenant, name, chance))
        report.problems += _stalled(report.turns[-1], tenant.name)
        say(f"    {_figure(report.turns[-1:])} (aim: {ACTIONS[name].aim})")
    for tenant in site.tenants:
        report.problems += tenant.problems()
        report.acknowledged += len(tenant.traffic.history.acknowledged)


def _turn(site: Site, tenant: Tenant, name: str, chance: random.Random) -> Turn:
    for each in site.tenants:
        each.traffic.begin_stretch()
    began_s = time.monotonic()
    ACTIONS[name].do(site, tenant, chance)
    site.await_whole()
    if ACTIONS[name].moves_disks:
        site.back_up()
    (other,) = (each for each in site.tenants if each is not tenant)
    return Turn(name, time.monotonic() - began_s, _stalls(tenant), _stalls(other))


def _stalls(tenant: Tenant) -> Stalls:
    clients = tenant.traffic
    return Stalls(max(clients.writer_gap_s, clients.slowest_s), clients.reader_gap_s)


def _stalled(turn: Turn, tenant: str) -> list[str]:
    takes_down, allowed_s = ACTIONS[turn.action].takes_down, ACTIONS[turn.action].stall_seconds_max
    told = {
        tenant: turn.stalls if takes_down is Down.NONE else NO_STALLS,
        f"the other than {tenant}": turn.stalls_of_others if takes_down is not Down.ALL else NO_STALLS,
    }
    return [
        f"stalled: {turn.action}, {name}: {stalls}; allowed: {allowed_s:g} s"
        for name, stalls in told.items()
        if max(stalls) > allowed_s
    ]


def _figure(turns: list[Turn]) -> str:
    times = f"{len(turns)} times, " if len(turns) > 1 else ""
    stalls, others = _worst([turn.stalls for turn in turns]), _worst([turn.stalls_of_others for turn in turns])
    return f"{times}{stalls}; of the other Cluster {others}; whole again after {max(t.whole_s for t in turns):.0f} s"


def _worst(stalls: list[Stalls]) -> Stalls:
    return Stalls(max(each.writers_s for each in stalls), max(each.readers_s for each in stalls))
