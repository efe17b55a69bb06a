"""The clients and the clock with which the ConsumerGroups of one Cluster are reconciled."""

from collections.abc import Callable
from typing import Any, NamedTuple

from barnabas_core.clock import Clock
from barnabas_operator.kafka.cluster_admin import TimedWrite
from barnabas_operator.kube.api import KubeApi


class GroupEnvironment(NamedTuple):
    """The clients and the clock with which offset resets and scaling work in one Cluster.

    `client` connects to the brokers; it must be called in a thread. Each request that changes something must run in the
    context manager that `writing(seconds)` returns; `seconds` is the time limit of the request.
    """

    api: KubeApi
    namespace: str
    client: Callable[[], Any]
    writing: TimedWrite
    clock: Clock
