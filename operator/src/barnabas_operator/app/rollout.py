"""The rollout of a Cluster's brokers, one step at a time; a broker restarts only if enough replicas are in sync."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from barnabas_operator.app.child_process import Say
from barnabas_operator.app.local_cluster import LocalCluster
from barnabas_operator.planning.brokers.broker_steps import (
    BalanceLeaders,
    BrokerStep,
    RemoveBroker,
    RestartBroker,
    StartBrokers,
    balances_leaders,
    next_step,
)
from barnabas_operator.planning.cluster_state import ClusterState
from barnabas_operator.planning.refusal import Refusal
from barnabas_operator.resources.cluster import Cluster

POLL_S: Final = 0.1
# If no step is possible for this time, topics are reconciled before the next try.
PATIENCE_S: Final = 5.0


class Rollout:
    """The rollout of a Cluster's brokers.

    `look` returns the state of the cluster, or None if no broker answers; `balance` elects the preferred leaders.
    """

    def __init__(
        self,
        brokers: LocalCluster,
        look: Callable[[], Awaitable[ClusterState | None]],
        balance: Callable[[], Awaitable[None]],
        say: Say,
    ) -> None:
        self._brokers = brokers
        self._look = look
        self._balance = balance
        self._say = say
        self._waits_for: str | None = None
        self._unbalanced = False

    async def advance(self, cluster: Cluster, interrupted: Callable[[], bool]) -> Refusal | None:
        """Start, restart and remove brokers until they are as declared; return None, or why the next step has to wait.

        The reason is returned after PATIENCE_S without a step, or at once if `interrupted` returns True. Raises
        ChildFailed if a broker ends before it is ready.
        """
        deadline = time.monotonic() + PATIENCE_S
        while True:
            step = await self._next_step(cluster)
            if step is None:
                return None
            if isinstance(step, Refusal):
                self._tell(step)
                if interrupted() or time.monotonic() > deadline:
                    return step
                await asyncio.sleep(POLL_S)
                continue
            self._waits_for = None
            await self._carry_out(cluster, step)
            deadline = time.monotonic() + PATIENCE_S

    async def _next_step(self, cluster: Cluster) -> BrokerStep | Refusal | None:
        """Return the next step, the reason why the next step has to wait, or None if the brokers are as declared.

        The state is read from the brokers only if the next step depends on the state.
        """
        wanted = cluster.spec.brokers.replicas
        step = next_step(wanted, self._brokers.views(cluster), None, unbalanced=self._unbalanced)
        if not isinstance(step, Refusal):
            return step
        return next_step(wanted, self._brokers.views(cluster), await self._look(), unbalanced=self._unbalanced)

    def _tell(self, why: Refusal) -> None:
        """Print why the rollout waits, unless the previous message had the same reason."""
        if why.reason != self._waits_for:
            self._say(why.message)
        self._waits_for = why.reason

    async def _carry_out(self, cluster: Cluster, step: BrokerStep) -> None:
        match step:
            case StartBrokers(numbers):
                await self._brokers.start(cluster, numbers)
            case RestartBroker(broker_id=number):
                await self._brokers.restart(cluster, number)
                self._unbalanced = balances_leaders(cluster)
            case RemoveBroker(number):
                await self._brokers.remove(number)
            case BalanceLeaders():
                await self._balance()
                self._unbalanced = False
