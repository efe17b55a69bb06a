"""Servers of one bench run: one of each kind serves many rows, and fresh ones serve a single row."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, Protocol, TypeVar


class Server(Protocol):
    """One or several processes with their own folder."""

    def start(self) -> None: ...

    def close(self) -> None: ...


AnyServer = TypeVar("AnyServer", bound=Server)


class Pool(Generic[AnyServer]):
    """`prepare` gives, by the peer's name, a server that is not running on the folder; it may raise PartMissing."""

    def __init__(self, prepare: Mapping[str, Callable[[Path], AnyServer]], folder: Path) -> None:
        self._prepare = prepare
        self._folder = folder
        self._standing: dict[str, AnyServer] = {}
        self._fresh_count = 0

    def standing(self, name: str) -> AnyServer:
        """Return the server that all load rows share, which is warm after its first rows."""
        if name not in self._standing:
            server = self._prepare[name](self._folder / name)
            self._standing[name] = server
            server.start()
        return self._standing[name]

    def forget(self, name: str) -> None:
        """Stop a standing server; the next row that needs it starts a new one in an empty folder."""
        server = self._standing.pop(name, None)
        if server is not None:
            server.close()
            shutil.rmtree(self._folder / name, ignore_errors=True)

    def fresh(self, name: str) -> tuple[AnyServer, Path]:
        """Return a server that is not running and its empty folder; the row closes and removes them."""
        self._fresh_count += 1
        folder = self._folder / f"{name}-{self._fresh_count}"
        return self._prepare[name](folder), folder

    def close(self) -> None:
        """Stop every standing server."""
        for name in list(self._standing):
            self.forget(name)
