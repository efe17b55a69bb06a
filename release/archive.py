"""Archives of OCI layouts: reads what buildah wrote, writes what `skopeo` and `ctr images import` read."""

import io
import json
import tarfile
from pathlib import Path

from release.layout import Layout, files


def read(folder: Path) -> Layout:
    """Read the layout of one image from the folder that buildah pushed it to."""
    (root,) = json.loads((folder / "index.json").read_bytes())["manifests"]
    blobs = {f"sha256:{path.name}": path for path in (folder / "blobs" / "sha256").iterdir()}
    return Layout({name: root[name] for name in ("mediaType", "digest", "size")}, blobs)


def write(layout: Layout, name: str, archive: Path) -> None:
    """Write a layout under its full name; the same layout gives the same bytes."""
    with tarfile.open(archive, "w") as tar:
        for path, blob in sorted(files(layout, name).items()):
            member = tarfile.TarInfo(path)
            if isinstance(blob, Path):
                member.size = blob.stat().st_size
                with blob.open("rb") as content:
                    tar.addfile(member, content)
            else:
                member.size = len(blob)
                tar.addfile(member, io.BytesIO(blob))
