"""krew installs the kubectl plugin of a release: by its manifest, and from an index of one's own."""

import functools
import hashlib
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import pytest

from harness.kept_builds import cache, locked
from harness.require import require
from release import plugin
from release.version import Version

pytestmark = pytest.mark.soak(only=True)

ROOT: Final = Path(__file__).resolve().parents[2]
KREW: Final = "sigs.k8s.io/krew/cmd/krew@v0.4.3"
BUILD_SECONDS_MAX: Final = 1_800
VERSION: Final = Version("0.2.0", "0.2.0")


def run(*command: str | Path, **variables: str) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_SECONDS_MAX,
        env={**os.environ, **variables},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def krew() -> Path:
    """Return the program, which Go builds the first time."""
    require(shutil.which("go") and shutil.which("git"), "krew is built by go, and needs git")
    folder = cache() / f"krew-{KREW.rpartition('@')[2]}"
    with locked("krew"):
        if not (folder / "krew").exists():
            run("go", "install", KREW, GOBIN=str(folder), CGO_ENABLED="0", GOFLAGS="-mod=mod")
    return folder / "krew"


@pytest.fixture
def released(tmp_path: Path) -> Path:
    """Return a folder with the archive of the plugin and its manifest."""
    packed = plugin.archive(ROOT, 1_700_000_000)
    folder = tmp_path / "dist"
    folder.mkdir()
    (folder / plugin.ARCHIVE).write_bytes(packed)
    (folder / plugin.MANIFEST).write_text(plugin.manifest(VERSION, hashlib.sha256(packed).hexdigest()))
    return folder


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve the files of a folder; yield the address."""
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def index(folder: Path, manifest: str) -> str:
    """Make a Git repository that is an index with one plugin; return its address."""
    (folder / "plugins").mkdir(parents=True)
    (folder / "plugins" / plugin.MANIFEST).write_text(manifest)
    git = ("git", "-C", str(folder), "-c", "user.name=test", "-c", "user.email=test@localhost")
    for arguments in (("init", "--quiet"), ("add", "plugins"), ("commit", "--quiet", "-m", "plugins: add barnabas")):
        run(*git, *arguments)
    return f"file://{folder}"


def test_krew_installs_the_plugin_from_an_index_and_removes_it(released: Path, tmp_path: Path) -> None:
    place = {"KREW_ROOT": str(tmp_path / "krew"), "KREW_NO_UPGRADE_CHECK": "1"}
    program = tmp_path / "krew" / "bin" / plugin.PROGRAM
    with served(released) as address:
        manifest = (released / plugin.MANIFEST).read_text().replace("https://localhost", address)
        run(krew(), "index", "add", "own", index(tmp_path / "index", manifest), **place)
        run(krew(), "install", "own/barnabas", **place)
    assert run(program, "--help").startswith("usage: kubectl barnabas ")
    assert "own/barnabas" in run(krew(), "list", **place)
    assert "v0.2.0" in run(krew(), "info", "own/barnabas", **place)
    run(krew(), "uninstall", "barnabas", **place)
    assert not program.exists()


def test_krew_installs_the_plugin_by_the_files_of_a_release(released: Path, tmp_path: Path) -> None:
    place = {"KREW_ROOT": str(tmp_path / "krew"), "KREW_NO_UPGRADE_CHECK": "1"}
    files = (f"--manifest={released / plugin.MANIFEST}", f"--archive={released / plugin.ARCHIVE}")
    run(krew(), "install", *files, **place)
    assert run(tmp_path / "krew" / "bin" / plugin.PROGRAM, "--help").startswith("usage: kubectl barnabas ")


def test_krew_refuses_an_archive_that_was_changed(released: Path, tmp_path: Path) -> None:
    with (released / plugin.ARCHIVE).open("ab") as archive:
        archive.write(b"more")
    files = (f"--manifest={released / plugin.MANIFEST}", f"--archive={released / plugin.ARCHIVE}")
    place = {**os.environ, "KREW_ROOT": str(tmp_path / "krew"), "KREW_NO_UPGRADE_CHECK": "1"}
    done = subprocess.run(
        [krew(), "install", *files], capture_output=True, text=True, check=False, timeout=BUILD_SECONDS_MAX, env=place
    )
    assert done.returncode != 0
    assert "checksum" in done.stderr, done.stderr
