"""The kubectl plugin of a release: one executable file in a tar.gz, and the manifest by which krew installs it."""

import gzip
import io
import tarfile
import zipapp
from pathlib import Path
from shutil import copytree, ignore_patterns
from tempfile import TemporaryDirectory
from typing import Final

from release.version import Version

PROGRAM: Final = "kubectl-barnabas"
ARCHIVE: Final = f"{PROGRAM}.tar.gz"
MANIFEST: Final = "barnabas.yaml"
_MANIFEST: Final = """apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: barnabas
spec:
  version: v{version}
  shortDescription: Status, lag, records and waiting brokers of Barnabas
  description: |
    Shows topics, groups, lag and records of a Cluster of Barnabas, says why a broker does not restart, resets
    groups, and writes an archive for support without secrets.
  caveats: |
    It needs Python 3.11 or later.
  platforms:
    - selector:
        matchExpressions:
          - {{key: os, operator: In, values: [linux, darwin]}}
      # Install with --archive={archive}, or write the address here at which you serve that file.
      uri: https://localhost/{archive}
      sha256: {digest}
      bin: {program}
      files:
        - {{from: {program}, to: .}}
        - {{from: LICENSE, to: .}}
"""


def archive(stage: Path, made_s: int) -> bytes:
    """Return the tar.gz with the plugin and the licence; the same sources and time make the same bytes."""
    with TemporaryDirectory() as folder:
        package = Path(folder) / "plugin"
        sources = stage / "operator" / "src" / "barnabas_kubectl"
        copytree(sources, package / "barnabas_kubectl", ignore=ignore_patterns("__pycache__", "py.typed"))
        program = io.BytesIO()
        zipapp.create_archive(package, program, "/usr/bin/env python3", "barnabas_kubectl.main:main")
    files = {PROGRAM: (program.getvalue(), 0o755), "LICENSE": ((stage / "LICENSE").read_bytes(), 0o644)}
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", mtime=made_s) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for name, (content, mode) in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode, info.mtime = len(content), mode, made_s
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def manifest(version: Version, digest: str) -> str:
    """Return the manifest for krew; `digest` is the SHA-256 of the archive."""
    return _MANIFEST.format(version=version.semantic, archive=ARCHIVE, digest=digest, program=PROGRAM)
