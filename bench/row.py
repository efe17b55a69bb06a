"""The types of a row of the tables, and of a group of rows."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from bench.metrics import Metric
from bench.scenarios.stand import Scenario

SUBJECT: Final = "barnabas"


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that share a table: the same metrics, the same other peer."""

    key: str
    title: str
    peer: str
    metrics: tuple[Metric, ...]


class Place(Enum):
    """Where a row is measured: on new servers, or on the warm standing broker or cluster, open or secured."""

    OWN = "own"
    BROKER = "broker"
    CLUSTER = "cluster"
    SECURED = "secured"
    SECURED_CLUSTER = "secured cluster"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table. `quick` rows are measured in quick runs too; `slow` ones are repeated less."""

    key: str
    title: str
    group: Group
    scenario: Scenario
    quick: bool = True
    place: Place = Place.BROKER
    slow: bool = False
