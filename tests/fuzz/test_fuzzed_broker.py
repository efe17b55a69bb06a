"""Hostile requests to a running broker: it answers or closes the connection, and other clients notice nothing."""

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from fuzz.fuzzer import FuzzedBroker, Fuzzer
from harness.barnabas_server import peak_resident_bytes, prepare_barnabas
from harness.deadline import PATIENCE_S
from harness.server_process import ServerProcess
from harness.soak import seed, size

CASES = size(1_000, 50_000)
MEBIBYTE = 1024 * 1024
KEPT_BYTES_MAX = 8 * MEBIBYTE


@pytest.mark.slow
@pytest.mark.soak
async def test_hostile_requests_are_answered_or_close_only_their_own_connection(tmp_path: Path) -> None:
    broker = FuzzedBroker(tmp_path)
    try:
        chosen = seed()
        fuzzer = Fuzzer(broker, broker.start(), chosen)
        await fuzzer.run(0, CASES)
        assert not fuzzer.problems, f"make fuzz FUZZ='--seed {chosen} --cases {CASES}':\n" + "\n".join(fuzzer.problems)
        assert fuzzer.ends["answered"] > CASES * 0.3
        assert fuzzer.answers_owed > CASES / 20  # A missing answer would be among the problems.
        assert broker.server.stop() == 0
    finally:
        broker.server.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A broker for several tests, which must end in order without an error in its log."""
    server = prepare_barnabas(tmp_path_factory.mktemp("broker"), {})
    server.start()
    try:
        yield server
        assert server.stop() == 0
        assert "ERROR" not in server.log_text()
    finally:
        server.close()


def test_a_topic_without_a_name_is_an_invalid_request_if_responses_need_names(server: ServerProcess) -> None:
    header = struct.pack(">hhih", 3, 11, 77, -1) + b"\0"
    topics = b"\x02" + bytes(16) + b"\0\0"
    answer = _ask(server.port, header + topics + b"\1\0\0")
    assert struct.unpack_from(">i", answer) == (77,)
    assert b"\x02" + struct.pack(">h", 42) + b"\x01" + bytes(16) in answer


@pytest.mark.parametrize(
    ("size", "answer"),
    [(2**31 - 1, "closed"), (-1, "closed"), (0, "closed"), (104_857_601, "closed"), (104_857_600, "waits")],
)
def test_a_request_that_claims_gigabytes_takes_no_memory(server: ServerProcess, size: int, answer: str) -> None:
    before = peak_resident_bytes(server.pid)
    clients = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(50)]
    for client in clients:
        client.sendall(struct.pack(">ihhi", size, 0, 9, 1) + b"\0" * 1000)
    for client in clients:
        client.settimeout(30 if answer == "closed" else 0.02)
        assert _end(client) == answer
    assert peak_resident_bytes(server.pid) - before < KEPT_BYTES_MAX
    for client in clients:
        client.close()
    assert _ask(server.port, struct.pack(">hhih", 18, 0, 5, -1)).startswith(struct.pack(">i", 5))
    lines = server.log_text().count(f"a request has {size} bytes; 1 to 104857600 are allowed")
    assert lines == (len(clients) if answer == "closed" else 0)


def _end(client: socket.socket) -> str:
    try:
        return "answered" if client.recv(1) else "closed"
    except ConnectionResetError:
        return "closed"
    except TimeoutError:
        return "waits"


def _ask(port: int, request: bytes) -> bytes:
    """Send a request without its size; return the response without its size."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as client:
        client.sendall(struct.pack(">i", len(request)) + request)
        with client.makefile("rb") as answers:
            return answers.read(struct.unpack(">i", answers.read(4))[0])
