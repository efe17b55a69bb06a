"""Damaged TLS records and handshakes close their own connection, and have no other effect."""

import struct
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from harness.barnabas_server import peak_resident_bytes, prepare_barnabas, resident_bytes
from harness.certificates import Authority
from harness.deadline import wait_for
from harness.server_process import ServerProcess, free_port
from harness.soak import seed, size, took
from hostile.damaged_tls import ask, clients, is_ended

CASES = size(300, 100_000)
WARM_CASES = size(50, 2_000)
"""OpenSSL's tables and our buffers are made on first use; memory that grows after that is a leak."""
LOOK_CASES = size(50, 1_000)
GROWTH_BYTES_MAX = 4 << 20
ANSWER_S_MAX = 1.0


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "pki")


@pytest.fixture
def broker(tmp_path: Path, authority: Authority) -> Iterator[ServerProcess]:
    """A broker that requires client certificates; its port is that of the TLS listener."""
    secure = free_port()
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{free_port()},SSL://127.0.0.1:{secure}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.issue("broker").file),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.file),
        "ssl.client.auth": "required",
    }
    process = prepare_barnabas(tmp_path, settings)
    process.port = secure
    with closing(process):
        process.start()
        yield process


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_damaged_tls_closes_only_its_own_connection_and_leaks_no_memory(
    broker: ServerProcess, authority: Authority
) -> None:
    contexts, chosen = clients(authority, authority.issue("alice")), seed()
    warm_bytes, times, hanging = 0, [], []
    sockets = Path(f"/proc/{broker.pid}/fd")
    opened = len(list(sockets.iterdir()))
    for number in range(CASES):
        if not is_ended(broker.port, contexts, chosen, number):
            hanging.append(number)
        if number == WARM_CASES:
            warm_bytes = peak_resident_bytes(broker.pid)
        if number % LOOK_CASES == 0:
            began_s = time.monotonic()
            assert [ask(broker.port, each) for each in contexts] == [struct.pack(">i", 7)] * len(contexts)
            times.append(time.monotonic() - began_s)
    assert not hanging
    took("the slowest honest client beside them", max(times), ANSWER_S_MAX)
    print(f"{CASES} cases: {(resident_bytes(broker.pid) - warm_bytes) >> 10} KiB more than after {WARM_CASES}")
    assert peak_resident_bytes(broker.pid) - warm_bytes < GROWTH_BYTES_MAX
    wait_for(lambda: len(list(sockets.iterdir())), lambda count: count <= opened + 1)
    assert broker.stop() == 0
    text = broker.log_text()
    assert "TLS handshakes failed" in text
    assert "Traceback" not in text
    assert "ERROR" not in text
