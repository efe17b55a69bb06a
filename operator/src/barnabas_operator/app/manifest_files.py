"""Reads the manifest files of a directory, and watches their changes."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from watchfiles import Change, awatch

from barnabas_operator.planning.brokers.local_properties import manifest_problems
from barnabas_operator.resources.manifests import Manifests, parse_manifests
from barnabas_operator.resources.yaml_documents import ManifestError, Place

SUFFIXES: Final = frozenset({".yaml", ".yml"})
# Editors often save by several writes and a rename, so a change is reported only after a pause without changes.
QUIET_MS: Final = 50
DELAY_MS_MAX: Final = 400


def read_manifests(path: Path) -> Manifests:
    """Return the manifests of a directory or a file, with all errors found; hidden files are not read."""
    texts: dict[str, str] = {}
    unreadable: list[ManifestError] = []
    for file in manifest_files(path):
        try:
            texts[str(file)] = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            unreadable.append(ManifestError(Place(str(file), 1, 1), f"the file cannot be read: {error}"))
    manifests = parse_manifests(texts)
    manifests = manifests._replace(errors=(*unreadable, *manifests.errors))
    return manifests._replace(errors=manifest_problems(manifests, str(path)))


def manifest_files(path: Path) -> list[Path]:
    """Return the .yaml and .yml files of a directory, sorted by name, or the file itself."""
    return sorted(file for file in path.iterdir() if _counts(file)) if path.is_dir() else [path]


def _counts(file: Path) -> bool:
    return file.suffix in SUFFIXES and not file.name.startswith(".")


async def changes(path: Path) -> AsyncIterator[None]:
    """Yield None after each burst of changes to manifest files, so that the caller reads the files again."""
    is_folder = path.is_dir()
    folder = path if is_folder else path.parent

    def counts(_change: Change, name: str) -> bool:
        return _counts(Path(name)) if is_folder else Path(name).name == path.name

    watch = awatch(folder, watch_filter=counts, step=QUIET_MS, debounce=DELAY_MS_MAX, recursive=False)
    async for _changed in watch:
        yield None
