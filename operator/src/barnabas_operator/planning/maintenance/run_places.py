"""The check that a run writes only to its volumes or an object store, because other files are lost with the pods."""

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

from barnabas_operator.resources.maintenance_run import RunSpec

FOLDERS: Final = ("archive", "report", "state")
"""The options of jobs that name a folder to write to."""
OBJECT_STORE: Final = "s3a://"


def place_problems(run: RunSpec, at: str) -> Iterator[str]:
    """Yield a message for each option whose folder is neither on a volume of the run nor in an object store."""
    mounts = [PurePosixPath(volume.mount_path) for volume in run.volumes]
    for name in FOLDERS:
        value = run.options.get(name, OBJECT_STORE)
        folder = PurePosixPath(value)
        is_kept = ".." not in folder.parts and any(folder.is_relative_to(mount) for mount in mounts)
        if not (value.startswith(OBJECT_STORE) or is_kept):
            below = (
                ", ".join(f"{mount}/..." for mount in mounts)
                or "the run has no volume yet; add a volume to the field volumes"
            )
            yield (
                f"{at}.options.{name} is {value}; allowed: a folder on one of the run's volumes ({below}), "
                "or a URL that begins with s3a://"
            )
