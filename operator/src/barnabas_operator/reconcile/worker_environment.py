"""The clients, settings, clock and functions that the workers of Clusters share."""

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
"""A function that connects to the brokers at `host:port[,host:port]`, and blocks while connecting.

Its other arguments are the seconds for which topic configs are cached, a context for each write, and the credentials.
Raises ClusterUnreachable if no broker answers.
"""


class Identity(NamedTuple):
    """A client certificate with its key, and the CA certificates for checking the brokers' certificates; all PEM."""

    authorities: str
    certificate: str
    key: str


Prove = Callable[[Identity], Credentials]
"""A function that makes credentials from an identity. It raises ValueError if the identity is invalid."""


@dataclass(frozen=True, slots=True)
class WorkerEnvironment:
    """The interfaces of a worker to API server, brokers, clock, random passwords and leadership."""

    api: KubeApi
    settings: OperatorSettings
    clock: LoopClock
    connect: Connect
    prove: Prove
    new_password: NewPassword
    leadership: Leadership = ALONE
