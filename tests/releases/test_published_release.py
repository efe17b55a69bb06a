"""A release is made, signed and pushed to a local registry, and checked as its users do."""

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from harness.require import require
from harness.server_process import ServerProcess, free_port
from local_kubernetes.helm import ask_helm
from release.layout import INDEX, MANIFEST
from release.signing import SIGNATURE, tag_of

pytestmark = pytest.mark.soak(only=True)

ROOT: Final = Path(__file__).resolve().parents[2]
MEGABYTES_MAX: Final = 80
MAKE_A_KEY: Final = "openssl ecparam -name prime256v1 -genkey -noout | openssl pkcs8 -topk8 -nocrypt -out cosign.key"
VERIFY: Final = (
    "sha256sum --check SHA256SUMS && base64 --decode SHA256SUMS.sig > SHA256SUMS.der"
    " && openssl dgst -sha256 -verify cosign.pub -signature SHA256SUMS.der SHA256SUMS"
)
"""The commands of docs/reference/releases.md."""


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    """Run Debian's registry; return HOST/PATH."""
    program = shutil.which("docker-registry")
    require(program, "needs Debian's docker-registry")
    port, config = free_port(), tmp_path / "registry.yml"
    settings = {
        "version": "0.1",
        "storage": {"filesystem": {"rootdirectory": str(tmp_path / "registry")}},
        "http": {"addr": f"127.0.0.1:{port}"},
    }
    config.write_text(json.dumps(settings), encoding="utf-8")
    server = ServerProcess([str(program), "serve", str(config)], port, tmp_path / "registry.log")
    server.start()
    try:
        yield f"127.0.0.1:{port}/team"
    finally:
        server.close()


def fetched(registry: str, path: str, accept: str) -> bytes:
    """Return a manifest or a blob."""
    host, _, team = registry.partition("/")
    request = urllib.request.Request(f"http://{host}/v2/{team}/{path}", headers={"Accept": accept})
    with urllib.request.urlopen(request) as answer:
        content: bytes = answer.read()
    return content


def test_users_get_signed_images_and_the_chart_from_a_registry(registry: str, tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    subprocess.run(["bash", "-c", MAKE_A_KEY], cwd=tmp_path, check=True)
    command = [sys.executable, "-m", "release", str(dist), "--images", "broker", "--publish", registry]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests"), "SIGN_KEY": str(tmp_path / "cosign.key")}
    made = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    sizes = re.findall(r"^\S+/barnabas-broker:\S+ (amd64|arm64): ([\d.]+) MB$", made.stdout, re.MULTILINE)
    print(sizes)
    assert [name for name, _ in sizes] == ["amd64", "arm64"]
    assert all(float(size) <= MEGABYTES_MAX for _, size in sizes)
    assert subprocess.run(["bash", "-c", VERIFY], cwd=dist, check=False).returncode == 0
    (chart,) = dist.glob("barnabas-*.tgz")
    version = chart.stem.removeprefix("barnabas-")
    pull = ("pull", f"oci://{registry}/charts/barnabas", f"--version={version}", "--plain-http")
    pulled = ask_helm(*pull, f"--destination={tmp_path}")
    assert pulled.returncode == 0, pulled.stderr
    assert (tmp_path / chart.name).read_bytes() == chart.read_bytes()
    check_with_cosign(dist, [f"{registry}/{name}:{version}" for name in ("barnabas-broker", "charts/barnabas")])
    key: Any = load_pem_public_key((dist / "cosign.pub").read_bytes())
    for name, kind in (("barnabas-broker", INDEX), ("charts/barnabas", MANIFEST)):
        check_signature(registry, name, fetched(registry, f"{name}/manifests/{version}", kind), key)


def check_with_cosign(dist: Path, references: list[str]) -> None:
    """Run the commands of docs/reference/releases.md, if cosign is installed."""
    cosign = shutil.which("cosign")
    if cosign is None:
        print("cosign is not installed: the signatures are verified by their format only")
        return
    trust = ["--key", "cosign.pub", "--insecure-ignore-tlog=true"]
    subprocess.run([cosign, "verify-blob", *trust, "--signature", "SHA256SUMS.sig", "SHA256SUMS"], cwd=dist, check=True)
    for reference in references:
        subprocess.run([cosign, "verify", *trust, reference], cwd=dist, check=True)


def check_signature(registry: str, name: str, manifest: bytes, key: EllipticCurvePublicKey) -> None:
    """Verify the signature of a manifest as cosign does."""
    digest = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
    signature = json.loads(fetched(registry, f"{name}/manifests/{tag_of(digest)}", MANIFEST))
    (layer,) = signature["layers"]
    payload = fetched(registry, f"{name}/blobs/{layer['digest']}", layer["mediaType"])
    key.verify(base64.b64decode(layer["annotations"][SIGNATURE]), payload, ECDSA(SHA256()))
    assert json.loads(payload)["critical"]["image"] == {"docker-manifest-digest": digest}
