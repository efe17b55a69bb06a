"""A report: a folder with JSON, Parquet and an HTML page, which appears complete or not at all."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from barnabas_jobs.planning.errors import JobFailed

OF_RUN: Final = ".run"
"""The file whose content is the name of the run that makes the report.

The run locks the file while it writes the report.
"""
BEFORE: Final = ".before"
"""The subfolder of a new report that holds the report of an earlier attempt of the run.

The subfolder is removed once the new report is complete.
"""


@contextmanager
def new_report(path: str, run: str | None) -> Iterator[Path]:
    """Yield a temporary folder, which gets the name `path` when the block ends.

    Raises JobFailed if another run has made a report at `path`, or is writing one. The report of an earlier attempt of
    the same run, whose driver was killed before it could report its end, is replaced once the new report is complete.
    """
    final = Path(path).absolute()
    try:
        with _folder_beside(final) as partial:
            if final.exists() and not _is_of(run, final):
                raise JobFailed(f"report={final} exists already; name another folder, or remove this folder")
            _empty(partial)
            (partial / OF_RUN).write_text(run or "", encoding="utf-8")
            yield partial
            if _is_of(run, final):
                # A rename is atomic; an interrupted removal might leave a part of the report without the file OF_RUN.
                final.rename(partial / BEFORE)
            partial.rename(final)
            shutil.rmtree(final / BEFORE, ignore_errors=True)
        if run is None:
            (final / OF_RUN).unlink()
    except OSError as error:
        raise JobFailed(f"report={final} cannot be written: {error.strerror}") from error


@contextmanager
def _folder_beside(final: Path) -> Iterator[Path]:
    """Yield a temporary folder next to the final folder. If the block fails, remove the temporary folder.

    This process locks the temporary folder while the block runs. Raises JobFailed if another run holds the lock.
    """
    partial = final.with_name(f".{final.name}.partial")
    partial.mkdir(parents=True, exist_ok=True)
    with (partial / OF_RUN).open("a") as lock:
        if not _is_ours(lock, partial / OF_RUN):
            raise JobFailed(
                f"report={final}: another run is writing this report; wait until that run has ended, or name another"
                " folder"
            )
        try:
            yield partial
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise


def _is_ours(lock: IO[str], path: Path) -> bool:
    """True if no other process holds the lock on the open file, and the file at `path` is still this file.

    Another process that held the lock until now may have removed or renamed the folder of the file.
    """
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # Without file locks, users must not write a report with two runs at once.
    return path.exists() and os.path.samestat(os.fstat(lock.fileno()), path.stat())


def _empty(partial: Path) -> None:
    """Remove the files that a killed driver left, but keep the file OF_RUN, which this process has locked."""
    for each in partial.iterdir():
        if each.is_dir():
            shutil.rmtree(each)
        elif each.name != OF_RUN:
            each.unlink()


def _is_of(run: str | None, report: Path) -> bool:
    """True if an attempt of this run made the report."""
    try:
        return (report / OF_RUN).read_text(encoding="utf-8") == run
    except (FileNotFoundError, NotADirectoryError):
        return False
