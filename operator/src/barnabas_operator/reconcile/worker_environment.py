"""The environment of the work on Clusters."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from barnabas_core.clock import LoopClock
from barnabas_kafka.security import Credentials
from barnabas_operator.kafka.cluster_admin import ClusterAdmin, TimedWrite
from barnabas_operator.kube.api import KubeApi
from barnabas_operator.leader_election.leadership import ALONE, Leadership
from barnabas_operator.planning.users.user_secret import NewPassword
from barnabas_operator.reconcile.operator_settings import OperatorSettings

Connect = Callable[[str, float, TimedWrite, Credentials], ClusterAdmin]
"""Connects to the brokers at `host:port[,host:port]`. Blocks; raises ClusterUnreachable.

Also takes the seconds for which the configs of topics are kept, what is entered for each write, and who connects.
"""


class Identity(NamedTuple):
    """A certificate with its key, and the authorities that brokers are to be of: all PEM."""

    authorities: str
    certificate: str
    key: str


Prove = Callable[[Identity], Credentials]
"""Makes credentials of an identity. Raises ValueError where it is broken."""


@dataclass(frozen=True, slots=True)
class WorkerEnvironment:
    """The API server, the brokers, time, chance, and whether this operator acts. Tests pass their own."""

    api: KubeApi
    settings: OperatorSettings
    clock: LoopClock
    connect: Connect
    prove: Prove
    new_password: NewPassword
    leadership: Leadership = ALONE
