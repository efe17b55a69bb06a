"""`SHA256SUMS`, as `sha256sum --check` reads it."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

NAME: Final = "SHA256SUMS"


def sha256_of(path: Path) -> str:
    """Return the digest of a file that may be larger than memory."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def lines(digests: Mapping[str, str]) -> str:
    """Return one line for each file, in the order of their names."""
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items()))
