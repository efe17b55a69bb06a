"""`barnabas operator`: reconcile the resources of a Kubernetes cluster until SIGTERM."""

import argparse
import asyncio
import logging
import os
import socket
import sys
from asyncio.sslproto import SSLProtocol
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args
from uuid import uuid4
from weakref import WeakValueDictionary

import msgspec
from msgspec import Meta

from barnabas_core.conventions import WebFiles, contradictions
from barnabas_kafka.connection import ClusterUnreachable
from barnabas_kafka.security import Credentials
from barnabas_kube.access import Access, NoAccess
from barnabas_kube.client import ApiClient
from barnabas_kube.discovery import find_access
from barnabas_operator import admission
from barnabas_operator.admission import DryRun, Previewed, missing_claims
from barnabas_operator.app.cluster_options import SystemClock, tls_identity
from barnabas_operator.app.local_users import new_password
from barnabas_operator.kafka.cluster_admin import ClusterAdmin, TimedWrite
from barnabas_operator.kafka.group_admin import UNKNOWN, preview
from barnabas_operator.kube.api import KubeApi, KubeRefused, KubeUnreachable
from barnabas_operator.leader_election import ALONE, ApiOutages, Election, Leadership
from barnabas_operator.manifests.kube_object import Neighbours
from barnabas_operator.observed.inventory import Inventory
from barnabas_operator.observed.operator_metrics import OperatorMetrics
from barnabas_operator.reconcile.cluster_workers import ClusterWorkers
from barnabas_operator.reconcile.reconcile_parts import MustEnd, blocking
from barnabas_operator.reconcile.worker_environment import OperatorSettings, WorkerEnvironment, broker_access
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.kind import Json, Key
from barnabas_operator.resources.maintenance_run import MaintenanceJob
from barnabas_operator.watch import run_by_kopf, watch_all
from barnabas_web.http_server import HttpServer, Page, Posts, Received, text_page
from barnabas_web.visitors import FileRefused, Limits, Protection, Turns

AGENT: Final = "barnabas-operator"
CONNECT_S: Final = 3.0
PREVIEW_S_MAX: Final = 2.0
"""The time limit for the webhook's warnings. It is short because the API server waits only 5 s for the webhook."""


class Operator:
    """The operator, with its watches, workers, leader election and metrics."""

    def __init__(self, settings: OperatorSettings, access: Access) -> None:
        self._settings = settings
        self._access = access
        self.clock = SystemClock()
        self.inventory = Inventory()
        self.metrics = OperatorMetrics(self.inventory)
        self.leadership = Leadership(self.clock.monotonic_s) if settings.lease else ALONE
        self.metrics.add_leadership(self.leadership)
        self._outages = ApiOutages(self.clock.monotonic_s)
        self.workers: ClusterWorkers | None = None
        self.dry_run: DryRun | None = None
        self._election: Election | None = None
        self._client: ApiClient | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.ending = asyncio.Event()
        """The event that ends the operator; `why_ending` has the reason."""
        self.why_ending = ""

    @property
    def why_dead(self) -> str | None:
        """The reason why the operator must be restarted, or None."""
        return self.workers.why_dead if self.workers is not None else None

    async def start(self) -> None:
        """Create the API client, and start the watches and, if a lease is configured, the leader election."""
        self._client = ApiClient(self._access, AGENT)
        api = KubeApi(self._client, self.leadership.writing)
        environment = WorkerEnvironment(
            api,
            self._settings,
            self.clock,
            self._connect,
            tls_identity,
            new_password,
            self.leadership,
            self._outages,
        )
        self.workers = ClusterWorkers(self.inventory, environment, self.metrics)
        self.dry_run = DryRun(api, self._settings.broker_image, self.clock)
        self._tasks = [asyncio.create_task(self._watch(api, self.workers))]
        if self._settings.lease:
            self._election = self._new_election(KubeApi(self._client), self.workers)
            self._tasks.append(asyncio.create_task(self._election.run()))

    async def _watch(self, api: KubeApi, workers: ClusterWorkers) -> None:
        try:
            await watch_all(api, self._settings.namespaces, workers, self.metrics.watch_failed, self.clock)
        except MustEnd as error:
            self.why_ending = str(error)
            self.ending.set()

    def _new_election(self, api: KubeApi, workers: ClusterWorkers) -> Election:
        namespace, _, name = self._settings.lease.partition("/")
        identity, lease = self._settings.identity, Key(namespace, name)
        return Election(api, lease, identity, self.leadership, self.clock, workers.restart_all, self._outages)

    def _connect(
        self, bootstrap: str, configs_kept_s: float, writing: TimedWrite, security: Credentials
    ) -> ClusterAdmin:
        return ClusterAdmin(bootstrap, self.clock, CONNECT_S, configs_kept_s, writing, security)

    async def preview(self, cluster: Cluster, resource: Previewed) -> tuple[str, ...]:
        """Return the webhook's warnings about the effect of an offset reset, or about a run's missing volume claims."""
        if isinstance(resource, MaintenanceJob):
            return await self._preview_run(resource)
        if resource.spec.offsets.reset is None:
            return ()
        assert self._client is not None, "the webhook must not answer before the operator has started"
        try:
            async with asyncio.timeout(PREVIEW_S_MAX):
                security = await broker_access(KubeApi(self._client), cluster, tls_identity)
                return await blocking(preview, self._settings.bootstrap_of(cluster), security, resource, self.clock)
        except (TimeoutError, ClusterUnreachable, KubeUnreachable, KubeRefused):
            return (UNKNOWN,)

    async def _preview_run(self, run: MaintenanceJob) -> tuple[str, ...]:
        assert self._client is not None, "the webhook must not answer before the operator has started"
        try:
            async with asyncio.timeout(PREVIEW_S_MAX):
                return await missing_claims(KubeApi(self._client), run)
        except TimeoutError:
            return ()

    async def stop(self) -> None:
        """Stop all workers, release the lease, so that another operator can act at once, and close all connections."""
        for task in self._tasks:
            task.cancel()
        if self.workers is not None:
            await self.workers.close()
        if self._election is not None:
            await self._election.resign()
        if self._client is not None:
            await self._client.close()


log = logging.getLogger(__name__)

REVIEW_BYTES_MAX: Final = 5 << 20
"""The size limit of a review: a new object of 3 MiB, which the API server accepts, and one of 1.5 MiB in etcd."""
VALUES_MAX: Final = 100_000
"""The maximum number of JSON values in a review, because each takes up to 100 bytes of memory."""
REVIEWS_MAX: Final = 32
"""The reviews of one address at a time; each may cause 25 dry runs at the API server."""

Answer = Callable[[Json], Awaitable[dict[str, Any]]]


class Starting(Exception):
    """The operator cannot answer reviews yet."""


class _Object(msgspec.Struct):
    kind: str
    metadata: dict[str, Any]


class _Request(msgspec.Struct, rename="camel"):
    uid: str
    object: _Object | None = None
    old_object: _Object | None = None


class _Review(msgspec.Struct, rename="camel"):
    """The fields that a review must have; the rest is the API server's."""

    api_version: str
    request: _Request


class Reviews:
    """The reviews at one port. Addresses take turns, so that bodies of a stranger delay the API server by one."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._turns = Turns()
        self._places: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def page(self, received: Received) -> Page:
        """Return the answer to a review; it is an error for a body that is no review, or has too many values."""
        if sum(map(received.body.count, (b",", b"[", b"{"))) > VALUES_MAX:
            return text_page(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a review may have {VALUES_MAX} values\n")
        async with self._places.setdefault(received.address, asyncio.Semaphore(REVIEWS_MAX)):
            try:
                review = await self._reviewed(received)
            except (msgspec.MsgspecError, RecursionError) as error:
                return text_page(HTTPStatus.BAD_REQUEST, f"the body is no admission review: {error}\n")
            except Starting:
                return text_page(HTTPStatus.SERVICE_UNAVAILABLE, "starting\n")
            except Exception:
                log.exception("a bug in the webhook, or a review that no API server sends")
                return text_page(HTTPStatus.INTERNAL_SERVER_ERROR, "the review failed; the operator's log has more\n")
        return Page(HTTPStatus.OK, "application/json", msgspec.json.encode(review))

    async def _reviewed(self, received: Received) -> dict[str, Any]:
        async with self._turns.turn(received.address):
            asked = msgspec.json.decode(received.body)
            msgspec.convert(asked, _Review)
            answer = asyncio.ensure_future(self._answer(asked))
            # The task judges the objects before it waits for anything, and the turn lasts so long.
            await asyncio.sleep(0)
        return await answer


PROBES: Final = frozenset({"/healthz", "/readyz"})
METRICS_TYPE: Final = "text/plain; charset=utf-8"
WEBHOOK_PORT: Final = 9443
WEBHOOK_HOST: Final = ""
"""All addresses of the pod, of IPv4 and IPv6."""
WEBHOOK_NAMES: Final = WebFiles("tls.crt in WEBHOOK_CERTIFICATES", "tls.key in WEBHOOK_CERTIFICATES", "")
OF_WEBHOOK: Final = Limits(bytes=32 << 20, rate=200)
"""The limits of the webhook's port: 512 connections, or six of the largest reviews."""


class CannotServe(Exception):
    """The error that an address cannot be bound, or a certificate cannot be read; the message has the reason."""


async def serve_pages(operator: Operator, listener: str, protection: Protection) -> HttpServer:
    """Serve the pages at `HOST:PORT`; the caller must stop the returned server.

    Raises CannotServe if the address is invalid or cannot be bound.
    """

    async def metrics() -> Page:
        return Page(HTTPStatus.OK, METRICS_TYPE, await operator.metrics.page())

    async def healthz() -> Page:
        reason = operator.why_dead
        return text_page(HTTPStatus.SERVICE_UNAVAILABLE if reason else HTTPStatus.OK, f"{reason or 'ok'}\n")

    async def readyz() -> Page:
        if operator.workers is None:
            return text_page(HTTPStatus.SERVICE_UNAVAILABLE, "starting\n")
        return text_page(HTTPStatus.OK, "ok\n")

    server = HttpServer({"/metrics": metrics, "/healthz": healthz, "/readyz": readyz}, PROBES, protection)
    host, _, port = listener.rpartition(":")
    try:
        await server.start(host.strip("[]"), int(port))
    except OSError as error:
        raise _cannot_listen(host, int(port), error) from error
    return server


async def serve_webhook(operator: Operator, certificates: Path) -> HttpServer:
    """Serve the admission webhook over TLS, with the files `tls.crt` and `tls.key` in the directory `certificates`.

    The caller must stop the returned server. Raises CannotServe if the port cannot be bound, and FileRefused if a file
    cannot be used.
    """
    files = WebFiles(str(certificates / "tls.crt"), str(certificates / "tls.key"))
    server = webhook_server(operator, Protection(files, WEBHOOK_NAMES))
    try:
        await server.start(WEBHOOK_HOST, WEBHOOK_PORT)
    except OSError as error:
        raise _cannot_listen(WEBHOOK_HOST, WEBHOOK_PORT, error) from error
    return server


def webhook_server(operator: Operator, protection: Protection) -> HttpServer:
    """Return the server that answers the API server's admission reviews at `/validate`; it does not listen yet."""

    async def answer(asked: Json) -> dict[str, Any]:
        workers, dry_run = operator.workers, operator.dry_run
        if workers is None or dry_run is None:
            raise Starting
        return await admission.answer(asked, operator.inventory, workers.state_of, dry_run, operator.preview)

    validate = Posts(Reviews(answer).page, REVIEW_BYTES_MAX)
    return HttpServer({}, (), protection, posts={"/validate": validate}, limits=OF_WEBHOOK)


def _cannot_listen(host: str, port: int, error: OSError) -> CannotServe:
    return CannotServe(f"the operator cannot listen at {host}:{port}: {error}")


Seconds = Annotated[float, Meta(ge=0.1, le=86_400, description="a number of seconds from 0.1 to 86400")]
Level = Annotated[
    Literal["DEBUG", "INFO", "WARNING", "ERROR"], Meta(description="one of DEBUG, INFO, WARNING and ERROR")
]
PORT: Final = "(6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5]?[0-9]{1,4})"
HostAndPort = Annotated[str, Meta(pattern=f"^[^ ]*:{PORT}$", description="HOST:PORT, with a port up to 65535")]
LeaseOrNone = Annotated[str, Meta(pattern="^([^/ ]+/[^/ ]+)?$", description="NAMESPACE/NAME, or nothing")]
MonitorLabels = Annotated[dict[str, str], Meta(description='labels as JSON, such as {"release": "prometheus"}')]
WEB_NAMES: Final = WebFiles("HTTP_CERTIFICATES", "HTTP_CERTIFICATES", "HTTP_TOKEN_FILE")


class InvalidVariable(Exception):
    """The error that a variable is invalid; the message has the variable's name, its value and what is allowed."""


class Variables(msgspec.Struct, frozen=True, rename=str.upper):
    """The operator's environment variables; `--help` describes each."""

    watch_namespaces: str = ""
    broker_image: str = "barnabas-broker:dev"
    operator_image: str = "barnabas-operator:dev"
    jobs_image: str = "barnabas-jobs:dev"
    image_pull_secrets: str = ""
    bootstrap: str = ""
    drift_seconds: Seconds = 60.0
    group_poll_seconds: Seconds = 15.0
    run_poll_seconds: Seconds = 5.0
    lease: LeaseOrNone = ""
    pod_namespace: str = ""
    release: str = ""
    pod_name: str = ""
    pod_monitor_labels: MonitorLabels = {}
    http_listener: HostAndPort = ":8080"
    http_certificates: str = ""
    http_token_file: str = ""
    webhook_certificates: str = ""
    log_level: Level = "INFO"

    def web_files(self) -> WebFiles:
        """Return the paths of the certificate, its key and the bearer token that protect the pages."""
        if not self.http_certificates:
            return WebFiles(token=self.http_token_file)
        folder = self.http_certificates
        return WebFiles(f"{folder}/tls.crt", f"{folder}/tls.key", self.http_token_file)

    def settings(self, identity: str) -> OperatorSettings:
        """Return the settings of the operator that holds its lease as `identity`."""
        return OperatorSettings(
            broker_image=self.broker_image,
            operator_image=self.operator_image,
            jobs_image=self.jobs_image,
            pull_secrets=_names(self.image_pull_secrets),
            namespaces=_names(self.watch_namespaces),
            bootstrap=self.bootstrap,
            drift_s=self.drift_seconds,
            group_poll_s=self.group_poll_seconds,
            run_poll_s=self.run_poll_seconds,
            lease=self.lease,
            identity=identity,
            neighbours=Neighbours(self.pod_namespace, self.release, self.pod_monitor_labels),
        )


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (name.strip() for name in text.split(","))))


def read_variables(environment: Mapping[str, str]) -> Variables:
    """Read the variables, with the defaults that `--help` shows.

    Raises InvalidVariable if a value is not allowed, alone or together with another variable.
    """
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(Variables)}
    given = {name: _value(name, environment[name], kind) for name, kind in fields.items() if name in environment}
    variables = msgspec.convert(given, Variables)
    for name, value, allowed in contradictions(variables.web_files(), WEB_NAMES):
        raise InvalidVariable(f"{name}={value} is refused; the variable {allowed}")
    return variables


def _value(name: str, text: str, kind: object) -> object:
    try:
        if kind is MonitorLabels:
            return msgspec.json.decode(text, type=dict[str, str])
        return msgspec.convert(text, kind, strict=False)
    except msgspec.MsgspecError as error:
        raise InvalidVariable(
            f"the environment variable {name} is {text}; allowed: {get_args(kind)[1].description}"
        ) from error


LOG_FORMAT: Final = "[%(asctime)s] %(levelname)s %(message)s (%(name)s)"
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
TURN_S: Final = 0.0005
"""The seconds after which Python switches threads, so that the webhook answers during long reconciliations."""
TLS_BUFFER_BYTES: Final = 32 * 1024
"""The size of the buffer that asyncio keeps for each TLS connection: two TLS records.

Each watch has a connection, which hardly receives anything. With asyncio's own 256 KiB the 1,020 watches in 60
namespaces took most of the operator's memory.
"""


VARIABLES: Final = """environment variables:
  WATCH_NAMESPACES      the namespaces to watch, comma-separated; empty: all namespaces
  BROKER_IMAGE, OPERATOR_IMAGE, JOBS_IMAGE
                        the images of brokers, of lag exporters, and of maintenance jobs
  IMAGE_PULL_SECRETS    the image pull secrets of maintenance pods, comma-separated
  BOOTSTRAP             an address that replaces the bootstrap address of every Cluster
  DRIFT_SECONDS         the longest time between two reconciliations of a Cluster; default: 60
  GROUP_POLL_SECONDS    the time between two readings of consumer groups; default: 15
  RUN_POLL_SECONDS      the time between two readings of active maintenance runs; default: 5
  LEASE                 NAMESPACE/NAME of the lease for the leader election; empty: no leader election
  POD_NAMESPACE, RELEASE, POD_NAME
                        the namespace, Helm release and name of the operator's own pod
  POD_MONITOR_LABELS    the labels of PodMonitors, as JSON
  HTTP_LISTENER         the address of /healthz, /readyz and /metrics; default: :8080, which is every address
  HTTP_CERTIFICATES     folder with tls.crt and tls.key for that address; empty: no TLS
  HTTP_TOKEN_FILE       file with the bearer token for /metrics; needs HTTP_CERTIFICATES; empty: no token
  WEBHOOK_CERTIFICATES  the folder with tls.crt and tls.key of the webhook; empty: no webhook
  LOG_LEVEL             DEBUG, INFO, WARNING or ERROR; default: INFO
  KUBECONFIG            the file for access to the API server; default: the pod's ServiceAccount"""


def main(arguments: Sequence[str]) -> int:
    """Run the command; return 0 after SIGTERM, 1 after a failure, 2 for wrong variables or no API server access."""
    parser = argparse.ArgumentParser(
        prog="barnabas operator",
        description="Reconcile the resources of a Kubernetes cluster until SIGTERM.",
        epilog=VARIABLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.parse_args(arguments)
    try:
        variables = read_variables(os.environ)
        access = find_access(os.environ)
    except (InvalidVariable, NoAccess) as error:
        return _failed(EXIT_USAGE, error)
    _log_to_stderr(variables.log_level)
    sys.setswitchinterval(TURN_S)
    shrink_tls_buffers()
    settings = variables.settings(f"{variables.pod_name or socket.gethostname()}_{uuid4()}")
    try:
        asyncio.run(_run(settings, access, variables))
    except (CannotServe, FileRefused, MustEnd) as error:
        return _failed(EXIT_FAILED, error)
    return 0


def shrink_tls_buffers() -> None:
    """Give each later TLS connection of this process a buffer of TLS_BUFFER_BYTES; asyncio has no argument for it."""
    SSLProtocol.max_size = TLS_BUFFER_BYTES


def _failed(code: int, error: Exception) -> int:
    print(f"barnabas operator: {error}", file=sys.stderr)
    return code


def _log_to_stderr(level: str) -> None:
    logging.basicConfig(level=level, format=LOG_FORMAT)
    for noisy, least in (
        ("kafka", logging.CRITICAL),
        ("kopf.objects", logging.WARNING),
        ("kopf.activities", logging.WARNING),
    ):
        logging.getLogger(noisy).setLevel(least)


async def _run(settings: OperatorSettings, access: Access, variables: Variables) -> None:
    operator, certificates = Operator(settings, access), variables.webhook_certificates
    protection = Protection(variables.web_files(), WEB_NAMES)
    pages = await serve_pages(operator, variables.http_listener, protection)
    webhook = await serve_webhook(operator, Path(certificates)) if certificates else None
    try:
        await run_by_kopf(operator.start, operator.stop, operator.ending, operator.clock)
    finally:
        await pages.stop()
        if webhook is not None:
            await webhook.stop()
    if operator.why_ending:
        raise MustEnd(operator.why_ending)
