"""Keeps builds and downloads for all checkouts of a user: in the cache, each under a hash of its sources."""

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


def cache() -> Path:
    """Return the folder in which builds are kept between runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "barnabas-e2e"


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold a lock that only one process of those that share the cache can have at a time."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def place_of(name: str, sources: Iterable[Path]) -> Path:
    """Return the path of the build of these sources, also before it is built."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(sources))).hexdigest()[:12]
    return cache() / f"{name}-{digest}"


def kept(name: str, sources: Iterable[Path], build: Callable[[Path], None]) -> Path:
    """Return what `build` made at the path that it gets; it runs once for each state of the sources."""
    place = place_of(name, sources)
    with locked(name):
        if not place.exists():
            partial = place.with_suffix(f".{os.getpid()}")
            build(partial)
            partial.rename(place)
    return place
