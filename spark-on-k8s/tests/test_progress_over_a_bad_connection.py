"""Progress that the API server, or a proxy before it, does not accept is written again; the job goes on."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from barnabas_jobs.app.run import PAUSE_S, DriverPod
from barnabas_jobs.planning.progress import Amount, Progress
from local_kubernetes.certificates import Authority

PROGRESS = Progress(phase="archiving", stages=Amount(0, 1), records=Amount(1, 100), records_per_second=1)
GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
BAD = {
    "no HTTP": b"\x15\x03\x01\x00\x02\x02F",
    "cut off": b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}",
    "overload": b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
    "nothing": b"",
}


@contextmanager
def answering(*answers: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Run a server that gives these responses in turn; yield its address and the bodies that it received."""
    told: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_PATCH(self) -> None:
            told.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.wfile.write(answers[len(told) - 1])
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = Thread(target=server.serve_forever)
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/api/v1/namespaces/air/pods/a", told
        finally:
            server.shutdown()
            serving.join()


@pytest.mark.parametrize("answer", BAD.values(), ids=BAD)
def test_a_failed_write_of_the_progress_is_logged_once_and_retried(
    answer: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "token").write_text("t", encoding="ascii")
    Authority(tmp_path)  # Makes ca.crt.
    now_s = [0.0]
    with answering(answer, GOOD) as (url, told):
        pod = DriverPod(url, tmp_path, tmp_path / "termination-log", lambda: now_s[0])
        for _ in range(3):
            pod.update(PROGRESS)
            now_s[0] += PAUSE_S
    assert len(told) == 2, "the failed write and one retry"
    assert capsys.readouterr().err.count("the progress cannot be written") == 1


def test_progress_that_does_not_change_is_written_every_30_seconds_with_the_time(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t", encoding="ascii")
    Authority(tmp_path)  # Makes ca.crt.
    now_s = [0.0]
    with answering(GOOD, GOOD, GOOD) as (url, told):
        pod = DriverPod(url, tmp_path, tmp_path / "termination-log", lambda: now_s[0], lambda: 1_000 + now_s[0])
        for _ in range(13):
            pod.update(PROGRESS)
            now_s[0] += PAUSE_S
    assert len(told) == 3
    for at_ms, body in zip((1_000_000, 1_030_000, 1_060_000), told, strict=True):
        assert b'atMs\\":' + str(at_ms).encode() in body
