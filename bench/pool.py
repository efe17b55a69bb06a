"""Servers of one bench run: one of each kind stands for many rows, fresh ones serve a single row."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, Protocol, TypeVar


class Server(Protocol):
    """A process or several, on an own folder."""

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
        """The server that all load rows share, warm after its first rows."""
        if name not in self._standing:
            server = self._prepare[name](self._folder / name)
            self._standing[name] = server
            server.start()
        return self._standing[name]

    def forget(self, name: str) -> None:
        """Ends a standing server; the next row that needs it starts a new one on an empty folder."""
        server = self._standing.pop(name, None)
        if server is not None:
            server.close()
            shutil.rmtree(self._folder / name, ignore_errors=True)

    def fresh(self, name: str) -> tuple[AnyServer, Path]:
        """A server that is not running, on an own empty folder; the row closes it and removes the folder."""
        self._fresh_count += 1
        folder = self._folder / f"{name}-{self._fresh_count}"
        return self._prepare[name](folder), folder

    def close(self) -> None:
        """Ends every standing server."""
        for name in list(self._standing):
            self.forget(name)
