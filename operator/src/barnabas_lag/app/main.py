"""`barnabas lag-exporter`: export the lag of consumer groups in any Kafka cluster to Prometheus."""

import asyncio
import logging
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from math import inf
from threading import Event, Thread
from typing import Any, Final

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, generate_latest

from barnabas_kafka.asking import Asking, Failure
from barnabas_kafka.connection import ClusterUnreachable, connected_client
from barnabas_lag.app.options import Listener, Options, parse
from barnabas_lag.evaluation.history import History
from barnabas_lag.evaluation.lags import Evaluation
from barnabas_lag.exposition import ClusterMetrics, OwnMetrics
from barnabas_lag.kafka.groups import evaluate, read_cluster
from barnabas_lag.kafka.offsets import SETTING, OffsetsRetention
from barnabas_web.http_server import HttpServer, Page, PageMaker, text_page
from barnabas_web.visitors import Protection

log = logging.getLogger(__name__)

PATIENCE_MIN_S: Final = 60.0
PATIENCE_ROUNDS: Final = 2
STALE_ROUNDS: Final = 4
"""The number of rounds without an answer after which the last known values are no longer exported."""
STALE_MIN_S: Final = 30.0
WITHOUT_RETENTION: Final = "the time until offsets expire is not exported, because the exporter has no value of %s: %s"
CUT_OFF: Final = (
    "because of --%s, %d topics or groups are not exported in full (see the metric barnabas_lag_exporter_cut_off); "
    "raise the limit, or exclude names"
)


@dataclass(slots=True)
class Clocks:
    """The clocks: `now_s` is in seconds since the epoch, as records' timestamps are, and `steady_s` never goes back."""

    now_s: Callable[[], float]
    steady_s: Callable[[], float]


@dataclass(slots=True)
class Rounds:
    """The rounds of one cluster: each round reads groups and offsets, and renders the lag as metrics.

    `connect` returns a client, or raises ClusterUnreachable.
    """

    options: Options
    connect: Callable[[], Any]
    clocks: Clocks
    begun_s: float = field(init=False)
    """The time when the last round of requests to the cluster began, in seconds of the clock `steady_s`."""
    own: OwnMetrics = field(init=False)
    _history: History = field(init=False)
    _retention: OffsetsRetention = field(init=False)
    _client: Any = field(init=False, default=None)
    _page: bytes = field(init=False, default=b"")
    _read_s: float = field(init=False, default=-inf)
    _reported: str = field(init=False, default="")
    _refusal: str = field(init=False, default="")
    _cut_off: Mapping[str, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.begun_s = self.clocks.steady_s()
        self.own = OwnMetrics(self.age_s, self.options.interval_s)
        self._retention = OffsetsRetention(self.clocks.steady_s)
        self._history = History(max(PATIENCE_MIN_S, PATIENCE_ROUNDS * self.options.interval_s))

    def age_s(self) -> float:
        """Return the seconds since the cluster was last read; infinite before the first time."""
        return self.clocks.steady_s() - self._read_s

    def page(self) -> bytes:
        """Return the metrics of the last round in which brokers answered; empty if that round is too old.

        A round is too old after STALE_ROUNDS intervals, but not before STALE_MIN_S seconds.
        """
        is_stale = self.age_s() > max(STALE_MIN_S, STALE_ROUNDS * self.options.interval_s)
        return b"" if is_stale else self._page

    def run(self, stop: Event) -> None:
        """Run rounds until `stop` is set.

        After a round that took longer than the interval, the next one begins at once.
        """
        try:
            while not stop.is_set():
                self.begun_s = self.clocks.steady_s()
                self.run_once()
                stop.wait(max(0.0, self.begun_s + self.options.interval_s - self.clocks.steady_s()))
        finally:
            self._disconnect()

    def run_once(self) -> None:
        """Read the cluster and render the metrics once; connect first if necessary, and log failed requests.

        If no broker answers, disconnect.
        """
        begun_s, is_answered = self.clocks.steady_s(), True
        try:
            self._client = self._client or self.connect()
            self._read(Asking(self._client))
        except ClusterUnreachable as error:
            is_answered = False
            self._history.unheard()
            self._disconnect()
            self._log_changes(f"no broker at {self.options.bootstrap} answers: {error}")
        self.own.round_ended(self.clocks.steady_s() - begun_s, is_answered=is_answered)

    def _read(self, asking: Asking) -> None:
        evaluation = self._evaluate(asking)
        metrics = ClusterMetrics(evaluation, self.options.limits)
        registry = CollectorRegistry()
        registry.register(metrics)
        self._page, self._read_s = generate_latest(registry), self.clocks.steady_s()
        self._log_cut_off(metrics.shown.cut_off)
        self._log_refusal(self._retention.refusal)
        self._log_failures(asking.failures)

    def _evaluate(self, asking: Asking) -> Evaluation:
        readings = read_cluster(asking, self.options.filters, self._retention)
        return evaluate(asking, readings, self._history, self.clocks.now_s())

    def _log_refusal(self, refusal: str) -> None:
        """Log once that brokers refuse to report their configs; missing rights are no failure of the cluster."""
        if refusal and refusal != self._refusal:
            log.warning(WITHOUT_RETENTION, SETTING, refusal)
        self._refusal = refusal

    def _log_failures(self, failures: list[Failure]) -> None:
        for each in failures:
            self.own.request_failed(each.request)
        self._log_changes("; ".join(dict.fromkeys(map(str, failures))))

    def _log_cut_off(self, cut_off: Mapping[str, int]) -> None:
        self.own.set_cut_off(cut_off)
        for option, count in cut_off.items():
            if count and not self._cut_off.get(option):
                log.warning(CUT_OFF, option, count)
        self._cut_off = cut_off

    def _log_changes(self, text: str) -> None:
        """Log the failures in `text` if they have changed; if `text` has become empty, log that the failures ended."""
        if text and text != self._reported:
            log.warning("%s", text)
        elif self._reported and not text:
            log.warning("the cluster answers all requests again")
        self._reported = text

    def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with suppress(Exception):  # A failure to close has no effect on the next round, which uses a new client.
                client.close()


POLL_S: Final = 1.0
HANG_MIN_S: Final = 120.0
"""The shortest time in seconds after which a round of requests to the brokers counts as hanging.

Brokers that do not answer may delay the round almost as long.
"""
HANG_ROUNDS: Final = 4


def hang_s(interval_s: float) -> float:
    """Return the seconds after which a round of requests to the brokers, with the pause after it, counts as hanging."""
    return max(HANG_MIN_S, HANG_ROUNDS * interval_s)


class Supervised:
    """A thread that works until `stop` is set; a new value of `progress` shows that the thread does not hang."""

    def __init__(self, work: Callable[[Event], object], progress: Callable[[], object]) -> None:
        self.stop: Final = Event()
        self.failure: str | None = None
        """The reason why the process must end, or None."""
        self._progress = progress
        self._thread = Thread(target=self._run, args=(work,), name="rounds", daemon=True)

    def _run(self, work: Callable[[Event], object]) -> None:
        try:
            work(self.stop)
        except Exception as error:
            log.exception("a round of requests to the brokers failed")
            self.failure = f"a round of requests to the brokers failed: {type(error).__name__}: {error}"
            self.stop.set()

    def watch(self, hang_after_s: float, poll_s: float = POLL_S) -> None:
        """Start the thread, and return when `stop` is set, or when the thread fails or hangs; `failure` has the reason.

        The thread hangs if `progress` returns the same value for `hang_after_s` seconds. The seconds are counted in
        pauses of `poll_s`, not by a clock, so that the time in which the process was suspended does not count.
        """
        self._thread.start()
        seen, polls = self._progress(), 0
        while not self.stop.wait(poll_s):
            now = self._progress()
            seen, polls = now, polls + 1 if now == seen else 0
            if polls * poll_s > hang_after_s:
                self.failure = f"a round of requests to the brokers hangs: it has not ended within {hang_after_s:g} s"
                return

    def join(self, seconds: float) -> None:
        """Wait at most `seconds` for the end of the thread."""
        self._thread.join(seconds)


PROBES: Final = frozenset({"/healthz"})


def make_pages(
    own: CollectorRegistry, cluster: Callable[[], bytes], why_ending: Callable[[], str | None]
) -> Mapping[str, PageMaker]:
    """Return the HTTP pages: the metrics, both the exporter's own and the lag that was last read, and the probe.

    A page is served without a request to the Kafka cluster.
    """

    async def metrics() -> Page:
        return Page(HTTPStatus.OK, CONTENT_TYPE_PLAIN_0_0_4, generate_latest(own) + cluster())

    async def healthz() -> Page:
        reason = why_ending()
        return text_page(HTTPStatus.SERVICE_UNAVAILABLE if reason else HTTPStatus.OK, f"{reason or 'ok'}\n")

    return {"/metrics": metrics, "/healthz": healthz}


class PageServer:
    """The HTTP server of the pages.

    It runs in a thread, so that slow clients do not delay the evaluation of the lag.
    """

    def __init__(self, listener: Listener, pages: Mapping[str, PageMaker], protection: Protection) -> None:
        """Listen, and start the thread. Raise OSError if the address cannot be used."""
        self._loop = asyncio.new_event_loop()
        self._server = HttpServer(pages, PROBES, protection)
        try:
            self.port = self._loop.run_until_complete(self._server.start(*listener))
        except OSError:
            self._loop.close()
            raise
        self._thread = Thread(target=self._loop.run_forever, name="pages", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening, and end the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._server.stop())
        self._loop.close()


EXIT_FAILED: Final = 1
CONNECT_TIMEOUT_S: Final = 5.0
END_SECONDS_MAX: Final = 2.0
CLIENT_ID: Final = "barnabas-lag-exporter"
LOG_FORMAT: Final = "[%(asctime)s] %(levelname)s %(message)s (%(name)s)"


def main(arguments: Sequence[str]) -> int:
    """Run the command, and return its exit code: 0 after SIGTERM or SIGINT, 1 after a failure, 2 for wrong options."""
    options = parse(arguments)
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    # kafka-python raises its errors, too, so its log would only repeat them.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    connect = partial(connected_client, options.bootstrap, CONNECT_TIMEOUT_S, CLIENT_ID, options.security)
    return serve(options, Rounds(options, connect, Clocks(time.time, time.monotonic)))


def serve(options: Options, rounds: Rounds) -> int:
    """Evaluate the lag at intervals, and serve the HTTP pages, until SIGINT or SIGTERM; return the exit code.

    Stop also if an evaluation fails or hangs.
    """
    supervised = Supervised(rounds.run, lambda: rounds.begun_s)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: supervised.stop.set())
    try:
        pages = make_pages(rounds.own.registry, rounds.page, lambda: supervised.failure)
        server = PageServer(options.listener, pages, options.protection)
    except OSError as error:
        log.error("cannot listen on --listen-address %s:%d: %s", *options.listener, error.strerror)
        return EXIT_FAILED
    address = (options.protection.scheme, options.listener.host or "*", server.port)
    log.info("serving %s://%s:%d/metrics with the metrics of the cluster at %s", *address, options.bootstrap)
    supervised.watch(hang_s(options.interval_s))
    server.close()
    if supervised.failure is None:
        supervised.join(END_SECONDS_MAX)
        return 0
    log.error("the lag exporter ends: %s", supervised.failure)
    return EXIT_FAILED
