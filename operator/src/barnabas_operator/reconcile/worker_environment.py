"""The environment of the work on Clusters."""

from collections.abc import Callable
from dataclasses import dataclass

from barnabas_core.clock import LoopClock
from barnabas_operator.kafka.cluster_admin import ClusterAdmin, TimedWrite
from barnabas_operator.kube.api import KubeApi
from barnabas_operator.leader_election.leadership import ALONE, Leadership
from barnabas_operator.planning.users.user_secret import NewPassword
from barnabas_operator.reconcile.operator_settings import OperatorSettings

Connect = Callable[[str, float, TimedWrite], ClusterAdmin]
"""Connects to the brokers at `host:port[,host:port]`. Blocks; raises ClusterUnreachable.

Also takes the seconds for which the configs of topics are kept, and what is entered for each write.
"""


@dataclass(frozen=True, slots=True)
class WorkerEnvironment:
    """The API server, the brokers, time, chance, and whether this operator acts. Tests pass their own."""

    api: KubeApi
    settings: OperatorSettings
    clock: LoopClock
    connect: Connect
    new_password: NewPassword
    leadership: Leadership = ALONE
