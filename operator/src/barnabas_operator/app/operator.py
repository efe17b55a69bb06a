"""`barnabas operator`: reconcile the resources of a Kubernetes cluster until SIGTERM."""

import argparse
import asyncio
import logging
import os
import socket
import sys
from asyncio.sslproto import SSLProtocol
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from uuid import uuid4

from barnabas_kube.access import Access, NoAccess
from barnabas_kube.discovery import find_access
from barnabas_operator.app.operator_parts import (
    WEB_NAMES,
    CannotServe,
    InvalidVariable,
    Operator,
    Variables,
    read_variables,
    serve_pages,
    serve_webhook,
)
from barnabas_operator.reconcile.reconcile_parts import MustEnd
from barnabas_operator.reconcile.worker_environment import OperatorSettings
from barnabas_operator.watch.kopf_run import run_by_kopf
from barnabas_web.visitors import FileRefused, Protection

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
  GROUP_LOOK_SECONDS    the time between two readings of consumer groups; default: 15
  RUN_LOOK_SECONDS      the time between two readings of active maintenance runs; default: 5
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
        return _said(EXIT_USAGE, error)
    _log_to_stderr(variables.log_level)
    sys.setswitchinterval(TURN_S)
    shrink_tls_buffers()
    settings = variables.settings(f"{variables.pod_name or socket.gethostname()}_{uuid4()}")
    try:
        asyncio.run(_run(settings, access, variables))
    except (CannotServe, FileRefused, MustEnd) as error:
        return _said(EXIT_FAILED, error)
    return 0


def shrink_tls_buffers() -> None:
    """Give each later TLS connection of this process a buffer of TLS_BUFFER_BYTES; asyncio has no argument for it."""
    SSLProtocol.max_size = TLS_BUFFER_BYTES


def _said(code: int, error: Exception) -> int:
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
