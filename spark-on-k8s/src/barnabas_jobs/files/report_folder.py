"""A report: a folder with JSON, Parquet and an HTML page, that is there as a whole or not at all."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from barnabas_jobs.planning.errors import JobFailed

OF_RUN: Final = ".run"
"""The file of a report that names the run which made it. The writer of a report has its lock."""
BEFORE: Final = ".before"
"""The folder in a report with the report of an earlier try, as long as it takes to remove that."""


@contextmanager
def new_report(path: str, run: str | None) -> Iterator[Path]:
    """A folder beside it, which takes its name at the end. Raises JobFailed where it is there, or another writes it.

    That of an earlier try of the same run, whose driver was killed before it could say that it had ended, goes when
    there is a new one: this try may fail.
    """
    final = Path(path).absolute()
    try:
        with _folder_beside(final) as partial:
            if final.exists() and not _is_of(run, final):
                raise JobFailed(f"report={final} is there already; name another folder, or remove it")
            _empty(partial)
            (partial / OF_RUN).write_text(run or "", encoding="utf-8")
            yield partial
            if _is_of(run, final):
                final.rename(partial / BEFORE)  # A rename is atomic: half a report would not show whose it is.
            partial.rename(final)
            shutil.rmtree(final / BEFORE, ignore_errors=True)
        if run is None:
            (final / OF_RUN).unlink()
    except OSError as error:
        raise JobFailed(f"report={final} cannot be written: {error.strerror}") from error


@contextmanager
def _folder_beside(final: Path) -> Iterator[Path]:
    """Make a folder beside the final one, which only this process has; remove it if the work inside fails."""
    partial = final.with_name(f".{final.name}.partial")
    partial.mkdir(parents=True, exist_ok=True)
    with (partial / OF_RUN).open("a") as lock:
        if not _is_ours(lock, partial / OF_RUN):
            raise JobFailed(f"report={final}: another run writes it; wait until that has ended, or name another folder")
        try:
            yield partial
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise


def _is_ours(lock: IO[str], path: Path) -> bool:
    """True if the file is locked now and still has its name: the last writer's goes away with the whole folder."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # Without file locks, users must not write one report twice at once.
    return path.exists() and os.path.samestat(os.fstat(lock.fileno()), path.stat())


def _empty(partial: Path) -> None:
    """Remove what a killed driver has left."""
    for each in partial.iterdir():
        if each.is_dir():
            shutil.rmtree(each)
        elif each.name != OF_RUN:
            each.unlink()


def _is_of(run: str | None, report: Path) -> bool:
    """True if the report exists and a try of this run has made it."""
    try:
        return (report / OF_RUN).read_text(encoding="utf-8") == run
    except (FileNotFoundError, NotADirectoryError):
        return False
