"""`barnabas console` as a child process, and a visitor that keeps its cookie and follows no redirect by itself."""

import http.client
import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

from harness.server_process import ServerProcess, free_port
from harness.stock_client import StockClient


class Answered(NamedTuple):
    """The answer to one request."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Any:
        """The body, as JSON."""
        return json.loads(self.text)


class Visitor:
    """A visitor of the pages: it keeps cookies, and sends the token of the last form that it has seen."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.cookie = ""
        self.csrf = ""

    def get(self, path: str, accept: str = "text/html", **headers: str) -> Answered:
        """Return the answer to GET."""
        return self._send("GET", path, "", {"Accept": accept, **headers})

    def json(self, path: str, **headers: str) -> Any:
        """Return the JSON of an address."""
        found = self.get(path, "application/json", **headers)
        assert found.status == 200, found
        return found.json

    def post(self, path: str, fields: Mapping[str, str], **headers: str) -> Answered:
        """Return the answer to a form."""
        kind = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "text/html"}
        return self._send("POST", path, urlencode(fields), {**kind, **headers})

    def log_in(self, username: str, password: str, mechanism: str = "PLAIN", back: str = "") -> Answered:
        """Log in by the form."""
        fields = {"username": username, "password": password, "mechanism": mechanism, "back": back}
        return self.post("/login", fields)

    def _send(self, method: str, path: str, body: str, headers: Mapping[str, str]) -> Answered:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            cookie = {"Cookie": self.cookie} if self.cookie else {}
            connection.request(method, path, body or None, {**cookie, **headers})
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        given = answer.getheader("Set-Cookie")
        if given is not None:
            self.cookie = given.split(";")[0]
        found = re.search(r'name="csrf" value="([^"]+)"', text)
        self.csrf = found[1] if found else self.csrf
        return Answered(answer.status, dict(answer.getheaders()), text)


class RunningConsole:
    """A console that reads clusters every second while somebody looks: one by its addresses, or those of a folder."""

    def __init__(
        self, shown: str | Path, folder: Path, *options: str, environment: Mapping[str, str] | None = None
    ) -> None:
        port = free_port()
        clusters = ["--clusters", str(shown)] if isinstance(shown, Path) else ["--bootstrap", shown]
        listening = [*clusters, "--listen-address", f"127.0.0.1:{port}", "--interval", "1"]
        command = [sys.executable, "-m", "barnabas", "console", *listening, *options]
        self.process = ServerProcess(command, port, folder / "console.log", environment)

    def visitor(self) -> Visitor:
        """Return a visitor without a session."""
        return Visitor(self.process.port)

    def log(self) -> str:
        """Return the log of the process."""
        return self.process.log_text()


class Secured(NamedTuple):
    """A broker: everybody is a super user at `open`, users log in at `bootstrap`."""

    process: ServerProcess
    bootstrap: str

    @property
    def open(self) -> str:
        """The address without a login."""
        return self.process.bootstrap

    def client(self) -> StockClient:
        """Return a client that may do everything."""
        return StockClient(self.open)


StartConsole = Callable[..., RunningConsole]


def logged_in(console: RunningConsole, name: str) -> Visitor:
    """Return a visitor that has logged in by its password."""
    visitor = console.visitor()
    assert visitor.log_in(name, f"{name}-secret").status == 303, console.log()
    return visitor
