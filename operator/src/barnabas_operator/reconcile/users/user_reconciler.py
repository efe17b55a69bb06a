"""Reconciles a Cluster's Users and writes their statuses."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from barnabas_operator.kafka.step_requests import StepRefused
from barnabas_operator.planning.brokers.pod_properties import reserved_users
from barnabas_operator.planning.conditions import (
    KAFKA_ERROR,
    KUBERNETES_ERROR,
    Refusal,
    owned_by,
    owners,
    time_text,
    with_problem,
)
from barnabas_operator.planning.object_names import EventText, bootstrap_name, kube_event
from barnabas_operator.planning.users.user_plan import (
    ClusterUsers,
    UserContext,
    UserPlan,
    UserStep,
    describe,
    owned_name,
    plan_deletion,
    plan_user,
    refuse,
)
from barnabas_operator.planning.users.user_secret import (
    NewPassword,
    drift_undone,
    password_event,
    password_of_status,
    password_status,
    user_status,
)
from barnabas_operator.reconcile.reconcile_parts import blocking
from barnabas_operator.reconcile.users.user_secrets import (
    KubeSecrets,
    ReadySecret,
    SecretRound,
    SecretsRefused,
    SecretWriter,
    UserSecrets,
)
from barnabas_operator.reconcile.worker_environment import (
    Bodies,
    DirectReconciler,
    EventWriter,
    ReconcilerEnvironment,
    Seen,
    all_ended,
)
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.user import User

AT_ONCE_MAX: Final = 16
"""The maximum number of Secrets that are read or written at once."""

RefusedSteps = dict[str, tuple[UserStep, StepRefused]]
"""The change that the brokers refused and the brokers' error, by user name."""


class UserBrokers(NamedTuple):
    """The requests to brokers about users. Both functions raise ClusterUnreachable."""

    read: Callable[[], Awaitable[ClusterUsers]]
    apply: Callable[[Sequence[UserStep]], Awaitable[RefusedSteps]]


class UserOutcome(NamedTuple):
    """A user with its new status, and the changes made for it."""

    user: User
    drift: tuple[UserStep, ...] = ()
    """The steps that restored the user in Kafka after other clients had changed the user."""
    password_event: EventText | None = None
    """The Event about a new password, or about the end of the previous one."""


class UsersOutcome(NamedTuple):
    """The outcome: the declared users, the users whose deletion has to wait, and the changes as text."""

    declared: tuple[UserOutcome, ...]
    kept: tuple[User, ...]
    done: tuple[str, ...]


class UsersRound(NamedTuple):
    """The input of one reconciliation: the brokers' users, the owner of each user name, and the data for Secrets.

    `problem` says why a CA cannot be read, so that no User can be reconciled; otherwise it is None.
    """

    context: UserContext
    owned: Mapping[str, User]
    secrets: SecretRound
    problem: Refusal | None


class UsersWork:
    """The reconciler of one Cluster's users. `reserved` are names that no User may have."""

    def __init__(
        self, brokers: UserBrokers, secrets: UserSecrets, new_password: NewPassword, reserved: Collection[str] = ()
    ) -> None:
        self._brokers: Final = brokers
        self._secrets: Final = secrets
        self._writer: Final = SecretWriter(secrets, new_password)
        self._reserved: Final = reserved
        self._turns: Final = asyncio.Semaphore(AT_ONCE_MAX)

    async def begin(self, cluster: Cluster, declared: Sequence[User], bootstrap: str, now_ms: int) -> UsersRound:
        """Read the brokers' users, and return the input for the reconciliation. Raises ClusterUnreachable.

        `bootstrap` is the clients' bootstrap address while the Cluster's status has none.
        """
        has_rights = cluster.spec.authorization is not None
        context = UserContext(await self._brokers.read(), self._reserved, has_rights)
        owned = owners(declared, lambda user: user.username)
        brokers_authority, clients_authority, problem = "", None, None
        try:
            brokers_authority = await self._secrets.brokers_authority(cluster)
            if any(user.spec.authentication.type == "tls" for user in declared):
                clients_authority = await self._secrets.clients_authority(cluster)
        except SecretsRefused as error:
            problem = Refusal(KUBERNETES_ERROR, str(error))
        secrets = SecretRound(cluster, bootstrap, now_ms, brokers_authority, clients_authority)
        return UsersRound(context, owned, secrets, problem)

    async def reconcile(self, round_: UsersRound, declared: Sequence[User], ending: Sequence[User]) -> UsersOutcome:
        """Reconcile declared and deleted users; an error becomes the status of the user. Raises ClusterUnreachable."""
        planned = await all_ended(self._plan(user, round_) for user in declared)
        found = round_.context.found
        deletions = [
            plan_deletion(user, found.of(owned_name(user) or ""), round_.owned, self._reserved) for user in ending
        ]
        steps = [step for plan in (*(plan for plan, _ in planned), *deletions) for step in plan.steps]
        refused = await self._brokers.apply(steps) if steps else {}
        now = time_text(round_.secrets.now_ms)
        outcomes = tuple(_outcome(plan, ready, refused, round_.secrets) for plan, ready in planned)
        kept = await all_ended(self._end(plan, refused, now) for plan in deletions)
        done = tuple(describe(step) for step in steps if step.user not in refused)
        return UsersOutcome(outcomes, tuple(user for user in kept if user is not None), done)

    async def _plan(self, user: User, round_: UsersRound) -> tuple[UserPlan, ReadySecret]:
        """Write the user's Secret, and then return the plan.

        If the plan were carried out before the Secret is written, a crash could lose a new password.
        """
        owner = round_.owned[user.username]
        if round_.problem is not None:
            return UserPlan(user, refusal=round_.problem), ReadySecret()
        if owner is not user:
            return UserPlan(user, refusal=owned_by(owner, user.username)), ReadySecret()
        if user.spec.pause:
            return UserPlan(user), ReadySecret()
        refusal = refuse(user, round_.context)
        if refusal is not None:
            return UserPlan(user, refusal=refusal), ReadySecret()
        async with self._turns:
            ready = await self._writer.bring(user, round_.secrets)
        if ready.refusal is not None:
            return UserPlan(user, refusal=ready.refusal), ready
        return plan_user(user, round_.context.found.of(user.username), ready.known), ready

    async def _end(self, plan: UserPlan, refused: RefusedSteps, now: str) -> User | None:
        """Delete a deleted user's Secret with `dismiss`, or return the user with an error if the deletion must wait."""
        problem = plan.refusal or _problem(plan, refused)
        if problem is not None:
            return with_problem(plan.resource, problem, now)
        await self._secrets.dismiss(plan.resource)
        return None


def _outcome(plan: UserPlan, ready: ReadySecret, refused: RefusedSteps, round_: SecretRound) -> UserOutcome:
    user, now = plan.resource, time_text(round_.now_ms)
    if plan.refusal is not None or user.spec.pause:
        return UserOutcome(replace(user, status=user_status(user, plan.refusal, now)))
    problem, before = _problem(plan, refused), password_of_status(user)
    after = before if problem is not None else password_status(user, plan, ready.known, round_.now_ms)
    status = user_status(
        user,
        problem,
        now,
        cluster=round_.cluster.metadata.name,
        has_secret=ready.is_there,
        passwords=after,
        certificate=ready.certificate,
        note=ready.note,
    )
    user = replace(user, status=status)
    drift = plan.drift if problem is None else ()
    return UserOutcome(user, drift, password_event(user.username, before, after))


def _problem(plan: UserPlan, refused: RefusedSteps) -> Refusal | None:
    mine = next((refused[step.user] for step in plan.steps if step.user in refused), None)
    if mine is None:
        return None
    step, error = mine
    return Refusal(KAFKA_ERROR, f"could not {describe(step)}: {error}")


log = logging.getLogger(__name__)

PART: Final = 100
"""The number of Users in one batch, so that the first of thousands of Users are soon ready."""
SECRETS_KEPT: Final = 0.5
"""The time for which a Secret is cached, as a fraction of the interval between reconciliations."""


class UserReconciler(DirectReconciler[User]):
    """The reconciler of one Cluster's Users."""

    def __init__(self, environment: ReconcilerEnvironment) -> None:
        super().__init__(environment, User)
        worker_environment = environment.worker_environment
        self._events: Final = EventWriter(worker_environment.api)
        kept_s = worker_environment.settings.drift_s * SECRETS_KEPT
        self._secrets: Final = KubeSecrets(worker_environment.api, environment.key.namespace, self._clock, kept_s)
        self._new_password: Final = worker_environment.new_password

    async def reconcile(self, cluster: Cluster, bodies: Bodies, seen: Seen) -> Seen:
        """Reconcile the Users once. Without Users, send no request to the brokers."""
        declared, ending = await self._readable(bodies)
        if not declared and not ending:
            return seen
        work = UsersWork(self._brokers(cluster), self._secrets, self._new_password, reserved_users(cluster))
        round_ = await work.begin(cluster, declared, _bootstrap(cluster), self._clock.now_ms())
        for part in _parts(declared):
            held = await self._with_finalizers(part, bodies)
            await self._write(cluster, await work.reconcile(round_, held, ()), bodies)
        outcome = await work.reconcile(round_, (), ending)
        await self._write(cluster, outcome, bodies)
        await self._release_others(ending, outcome.kept, bodies)
        return seen

    async def _write(self, cluster: Cluster, outcome: UsersOutcome, bodies: Bodies) -> None:
        for line in outcome.done:
            log.info("%s/%s: %s", cluster.metadata.namespace, cluster.metadata.name, line)
        await self._write_statuses((*(each.user for each in outcome.declared), *outcome.kept), bodies)
        await self._send_events(outcome.declared)

    def _brokers(self, cluster: Cluster) -> UserBrokers:
        async def read() -> ClusterUsers:
            return await blocking(lambda: self._connected(cluster).users())

        async def apply(steps: Sequence[UserStep]) -> RefusedSteps:
            return await blocking(lambda: self._connected(cluster).apply_to_users(steps))

        return UserBrokers(read, apply)

    async def _send_events(self, outcomes: Iterable[UserOutcome]) -> None:
        for outcome in outcomes:
            for event in filter(None, (drift_undone(outcome.drift), outcome.password_event)):
                await self._events.send(kube_event(outcome.user, *event, self._now()))


def _parts(users: Sequence[User]) -> Iterator[Sequence[User]]:
    return (users[start : start + PART] for start in range(0, len(users), PART))


def _bootstrap(cluster: Cluster) -> str:
    """Return the bootstrap address for clients in pods, which is used until the Cluster's status has an address."""
    name, namespace = bootstrap_name(cluster.metadata.name), cluster.metadata.namespace or "default"
    return f"{name}.{namespace}.svc:{cluster.spec.listeners[0].port}"
