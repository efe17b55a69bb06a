"""The list of all kinds of resources, to which a new kind must be added."""

from collections.abc import Mapping
from typing import Final

from barnabas_operator.resources.cluster_kind import CLUSTER
from barnabas_operator.resources.consumer_group import CONSUMER_GROUP
from barnabas_operator.resources.kind import Kind
from barnabas_operator.resources.maintenance_job import MAINTENANCE_JOB
from barnabas_operator.resources.topic import TOPIC
from barnabas_operator.resources.user import USER

KINDS: Final[Mapping[str, Kind]] = {
    CLUSTER.name: CLUSTER,
    TOPIC.name: TOPIC,
    USER.name: USER,
    CONSUMER_GROUP.name: CONSUMER_GROUP,
    MAINTENANCE_JOB.name: MAINTENANCE_JOB,
}
"""The kinds by the field `kind`. Do not copy the mapping at import, because tests add kinds."""


def kind_of_plural(plural: str) -> Kind:
    """Return the kind with this plural name. Raises LookupError if there is none."""
    for kind in KINDS.values():
        if kind.plural == plural:
            return kind
    raise LookupError(f"no kind has the plural {plural}; allowed: {', '.join(each.plural for each in KINDS.values())}")
