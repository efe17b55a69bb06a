"""The events of a search or a tail, as a browser reads them."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse

from harness.running_console import RunningConsole, Visitor


@contextmanager
def events(console: RunningConsole, visitor: Visitor, query: str, topic: str = "flights") -> Iterator[HTTPResponse]:
    """Open the events of a search."""
    connection = HTTPConnection("127.0.0.1", console.process.port, timeout=60)
    try:
        connection.request("GET", f"/topics/{topic}/messages/stream?{query}", headers={"Cookie": visitor.cookie})
        yield connection.getresponse()
    finally:
        connection.close()


def read_until(answer: HTTPResponse, text: str) -> str:
    """Read lines until one of them has the text, and return all of them."""
    got = ""
    while text not in got:
        line = answer.readline().decode()
        assert line, got
        got += line
    return got
