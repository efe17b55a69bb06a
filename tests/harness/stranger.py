"""Collects what a client without credentials gets from a port: in clear, by TLS without certificate, HTTP and Spark.

As a program, with `HOST PORT...`, it prints that of each port as JSON. It needs only Python, so that a pod can run it.
"""

import json
import os
import socket
import ssl
import struct
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

LISTENS: Final = "0A"
"""The state of a listening socket in /proc/net/tcp."""
ANSWER_S_MAX: Final = 10.0
REQUESTS: Final[Mapping[str, bytes]] = {
    "versions": struct.pack(">hhih", 18, 0, 7, -1),
    "metadata": struct.pack(">hhihi", 3, 1, 7, -1, -1),
    "produce": struct.pack(">hhihhhii", 0, 3, 7, -1, -1, 1, 1000, 0),
    "fetch": struct.pack(">hhihiiiibi", 1, 4, 7, -1, -1, 0, 0, 1, 0, 0),
    "passwords": struct.pack(">hhihb", 50, 0, 7, -1, 0) + b"\0\0",
    "mechanisms": struct.pack(">hhihh", 17, 1, 7, -1, 1) + b"X",
}
"""Requests of Kafka. Versions and mechanisms must be answered before a client can authenticate."""
PATHS: Final = (
    "/",
    "/metrics",
    "/healthz",
    "/startupz",
    "/readyz",
    "/validate",
    "/config",
    "/debug",
    "/metrics/../etc",
)
REVIEWS: Final = "/validate"
REVIEW: Final = json.dumps(
    {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {"uid": "1", "object": {"kind": "Topic", "metadata": {"name": "t", "namespace": "n"}, "spec": {}}},
    }
).encode()
"""A review as the API server sends it to the webhook."""
OF_SPARK: Final = struct.pack(">qbqi4sq", 33, 10, 1, 4, b"junk", 0)
"""A message of Spark's transport: an upload without data (type 10), with a description that no handler knows."""
FAILURE_OF_SPARK: Final = 5
UNAUTHENTICATED: Final = b"Unauthenticated"
"""A word of Spark's answer to a client that has not proved that it knows the secret."""
JSON: Final = {"Content-Type": "application/json"}


def listening_ports(pid: int) -> set[int]:
    """Return the ports that a process of this machine listens on."""
    links = (os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir())
    own = {link.removeprefix("socket:[").removesuffix("]") for link in links if link.startswith("socket:[")}
    tables = (Path(f"/proc/{pid}/net/{name}").read_text(encoding="ascii") for name in ("tcp", "tcp6"))
    rows = (row for table in tables for row in listening_rows(table))
    return {port_of(row) for row in rows if row[9] in own}


def listening_rows(table: str) -> Iterator[list[str]]:
    """Yield the fields of the listening sockets in the text of /proc/net/tcp or tcp6."""
    rows = (line.split() for line in table.splitlines())
    return (row for row in rows if len(row) > 9 and row[3] == LISTENS)


def port_of(row: list[str]) -> int:
    """Return the local port of a row of /proc/net/tcp or tcp6."""
    return int(row[1].rpartition(":")[2], 16)


def given_to_a_stranger(host: str, port: int) -> set[str]:
    """Return the names of the requests that the port answers."""
    return {*_of_kafka(host, port), *_of_http(host, port), *_of_spark(host, port)}


def _of_kafka(host: str, port: int) -> Iterator[str]:
    for name, request in REQUESTS.items():
        for way, connect in (("in clear", socket.create_connection), ("by TLS", _connected_by_tls)):
            with suppress(OSError), connect((host, port), ANSWER_S_MAX) as connection:
                connection.sendall(struct.pack(">i", len(request)) + request)
                answer = connection.recv(8)
                if answer[4:] == request[4:8]:
                    yield f"{name} {way}"


def _connected_by_tls(address: tuple[str, int], timeout_s: float) -> ssl.SSLSocket:
    """Return a connection of a client that trusts every certificate and has none."""
    return _trusting().wrap_socket(socket.create_connection(address, timeout_s))


def _trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _of_http(host: str, port: int) -> Iterator[str]:
    read = partial(urllib.request.urlopen, timeout=ANSWER_S_MAX, context=_trusting())
    for scheme in ("http", "https"):
        for path, body in (*((path, None) for path in PATHS), (REVIEWS, REVIEW)):
            asked = urllib.request.Request(f"{scheme}://{host}:{port}{path}", body, JSON if body else {})
            with suppress(OSError), read(asked) as answer:
                if answer.status == 200:
                    yield f"{scheme} {'POST ' if body else ''}{path}"


def _of_spark(host: str, port: int) -> Iterator[str]:
    """Yield a name if the port gives the message to a handler of Spark, whose error is the answer."""
    answer = answer_of_spark(host, port)
    if answer[8:9] == bytes([FAILURE_OF_SPARK]) and UNAUTHENTICATED not in answer:
        yield "upload to Spark"


def answer_of_spark(host: str, port: int) -> bytes:
    """Return the first bytes of the answer to a message of Spark; empty if the port sends none."""
    with suppress(OSError), socket.create_connection((host, port), ANSWER_S_MAX) as connection:
        connection.settimeout(ANSWER_S_MAX)
        connection.sendall(OF_SPARK)
        return connection.recv(4096)
    return b""


def main(host: str, *ports: str) -> None:
    """Print what each port gives, as JSON."""
    with ThreadPoolExecutor(len(ports)) as threads:
        found = threads.map(lambda port: sorted(given_to_a_stranger(host, int(port))), ports)
        print(json.dumps(dict(zip(ports, found, strict=True))))


if __name__ == "__main__":
    main(*sys.argv[1:])
