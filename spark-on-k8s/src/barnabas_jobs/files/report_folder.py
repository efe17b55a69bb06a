"""A report: a folder with JSON, Parquet and an HTML page, that is there as a whole or not at all."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from barnabas_jobs.planning.errors import JobFailed


@contextmanager
def new_report(path: str) -> Iterator[Path]:
    """A folder beside it, which takes its name at the end. Raises JobFailed where it is there already."""
    final = Path(path).absolute()
    partial = final.with_name(f".{final.name}.partial")
    if final.exists():
        raise JobFailed(f"report={final} is there already; name another folder, or remove it")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        yield partial
        partial.rename(final)
    except OSError as error:
        raise JobFailed(f"report={final} cannot be written: {error.strerror}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
