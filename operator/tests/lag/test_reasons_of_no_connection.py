"""The reason that a client gives if it cannot connect to a broker."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from barnabas_kafka.connection import ClusterUnreachable, connected_client
from barnabas_kafka.security import Security, Tls
from local_kubernetes.certificates import Authority

TIMEOUT_S = 1.5


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """Yield the port of a server with an untrusted certificate that closes every later connection."""
    broker = Authority(tmp_path / "strange").issue("broker", "/CN=broker", ["IP:127.0.0.1"])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(broker.certificate, broker.key)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                first, _ = server.accept()
                with suppress(OSError):
                    context.wrap_socket(first, server_side=True)
                first.close()
                while True:
                    server.accept()[0].close()

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_the_error_names_the_certificate_even_if_later_attempts_fail_otherwise(port: int, tmp_path: Path) -> None:
    trusted = Authority(tmp_path / "trusted").certificate
    with pytest.raises(ClusterUnreachable, match="CERTIFICATE_VERIFY_FAILED"):
        connected_client(f"127.0.0.1:{port}", TIMEOUT_S, "test", Security(tls=Tls(ca_file=trusted)))
