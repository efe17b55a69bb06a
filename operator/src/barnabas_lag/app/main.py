"""`barnabas lag-exporter`: export the lag of consumer groups in any Kafka cluster to Prometheus."""

import logging
import signal
import time
from collections.abc import Sequence
from functools import partial
from typing import Final

from barnabas_kafka.connection import connected_client
from barnabas_lag.app.options import Options, parse
from barnabas_lag.app.rounds import Clocks, PageServer, Rounds, Supervised, hang_s, make_pages

log = logging.getLogger(__name__)

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
