"""Container images without a registry and without Docker: what nodes import before pods name it."""

import hashlib
import io
import json
import tarfile
from pathlib import Path

from e2e.binaries import programs
from e2e.node import PAUSE_IMAGE


def pause_archive() -> Path:
    """The image of the process that holds a pod's namespaces: one static program."""
    program = programs() / "pause"
    archive = program.with_name("pause.tar")
    if not archive.exists():
        partial = archive.with_suffix(".partial")
        _write_archive(partial, PAUSE_IMAGE, "pause", program.read_bytes())
        partial.rename(archive)
    return archive


def _write_archive(archive: Path, image: str, name: str, program: bytes) -> None:
    """As `docker save` writes an image that is a single program."""
    layer = _tar({name: program})
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": [f"/{name}"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [image], "Layers": ["layer.tar"]}]
    files = {"config.json": config, "manifest.json": manifest}
    texts = {path: json.dumps(value).encode() for path, value in files.items()}
    archive.write_bytes(_tar({"layer.tar": layer, **texts}))


def _tar(files: dict[str, bytes]) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as tar:
        for path, content in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(content)
            member.mode = 0o755
            tar.addfile(member, io.BytesIO(content))
    return written.getvalue()
