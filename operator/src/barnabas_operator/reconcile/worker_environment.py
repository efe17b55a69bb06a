"""The clients, settings, clock and functions that the workers of Clusters share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from barnabas_core.clock import LoopClock
from barnabas_kafka.security import Credentials
from barnabas_operator.kafka.cluster_admin import ClusterAdmin, TimedWrite
from barnabas_operator.kube.api import KubeApi
from barnabas_operator.leader_election.api_outages import NO_OUTAGES, ApiOutages
from barnabas_operator.leader_election.leadership import ALONE, Leadership
from barnabas_operator.planning.users.user_secret import NewPassword
from barnabas_operator.reconcile.operator_settings import OperatorSettings

Connect = Callable[[str, float, TimedWrite, Credentials], ClusterAdmin]
"""A function that connects to brokers, and blocks until it is connected.

The first argument is the brokers' addresses, `host:port[,host:port]`. The other arguments are the seconds for which
topic configs are cached, a function that returns a context manager for each write, and the credentials. Raises
ClusterUnreachable if no broker answers.
"""


class Identity(NamedTuple):
    """A client certificate with its key, and the CA certificates for checking the brokers' certificates; all PEM."""

    authorities: str
    certificate: str
    key: str


Prove = Callable[[Identity], Credentials]
"""A function that makes credentials for connections to brokers from a client certificate and its key.

Raises ValueError if the certificate or the key is invalid.
"""


@dataclass(frozen=True, slots=True)
class WorkerEnvironment:
    """The clients, settings, clock and functions that a worker uses; `leadership` says whether the operator leads."""

    api: KubeApi
    settings: OperatorSettings
    clock: LoopClock
    connect: Connect
    prove: Prove
    new_password: NewPassword
    leadership: Leadership = ALONE
    outages: ApiOutages = NO_OUTAGES
