"""Makes the machine's Prometheus an image, under the name in the guide's manifest, for nodes that pull nothing."""

import hashlib
import os
import re
import subprocess
from pathlib import Path
from typing import Final

from harness.kept_builds import cache, locked
from local_kubernetes.images import write_archive
from monitoring.prometheus_programs import prometheus_programs
from monitoring.promtool import ROOT

MANIFEST: Final = ROOT / "examples" / "kubernetes" / "monitoring" / "prometheus.yaml"
(PROMETHEUS_IMAGE,) = re.findall(r"image: (\S+)", MANIFEST.read_text(encoding="utf-8"))
PROGRAM: Final = "/bin/prometheus"


def prometheus_archive() -> Path:
    """Return the archive, made once for each version of the program. Raises CannotStart."""
    program = prometheus_programs() / "prometheus"
    content = {PROGRAM[1:]: program.read_bytes()}
    content |= {path[1:]: Path(path).read_bytes() for path in _libraries(program)}
    digest = hashlib.sha256(PROMETHEUS_IMAGE.encode() + b"".join(content.values())).hexdigest()[:12]
    archive = cache() / f"prometheus-{digest}.image"
    with locked("prometheus"):
        if not archive.exists():
            written = archive.with_suffix(f".{os.getpid()}")
            write_archive(written, PROMETHEUS_IMAGE, content, PROGRAM)
            written.rename(archive)
    return archive


def _libraries(program: Path) -> list[str]:
    """Return the loader and the libraries that it loads; none for a static program."""
    told = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False).stdout
    return re.findall(r"(/\S+) \(0x", told)
