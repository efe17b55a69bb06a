"""The files in `dist/`: layouts, signatures, checksums and bills of materials, and where they are pushed."""

import base64
import hashlib
import io
import json
import platform
import subprocess
import sys
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP256R1, SECP384R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from ruamel.yaml import YAML

from release import archive, checksums, plugin, publishing, signing
from release.chart import chart_layout, with_images
from release.elf import machine_of
from release.errors import ReleaseError
from release.layout import Content, Layout, artifact, for_architectures
from release.version import Version

ROOT = Path(__file__).resolve().parents[2]
VERSION = Version("0.2.0", "0.2.0")
METADATA = {"name": "barnabas", "version": "0.2.0", "description": "The operator"}


def blob(layout: Layout, digest: str) -> bytes:
    found = layout.blobs[digest]
    assert isinstance(found, bytes)
    assert f"sha256:{hashlib.sha256(found).hexdigest()}" == digest
    return found


def test_an_image_archive_has_the_index_of_all_architectures_and_the_full_name(tmp_path: Path) -> None:
    images = {
        name: artifact(Content("config", name.encode()), [Content("layer", b"files")], {})
        for name in ("amd64", "arm64")
    }
    layout = for_architectures(images)
    for name in ("one.tar", "two.tar"):
        archive.write(layout, "localhost:5000/barnabas-broker:0.2.0", tmp_path / name)
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()
    with tarfile.open(tmp_path / "one.tar") as tar:
        contents = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
    (root,) = json.loads(contents["index.json"])["manifests"]
    assert root["annotations"]["io.containerd.image.name"] == "localhost:5000/barnabas-broker:0.2.0"
    assert root["annotations"]["org.opencontainers.image.ref.name"] == "0.2.0"
    manifests = json.loads(contents[f"blobs/{root['digest'].replace(':', '/')}"])["manifests"]
    assert [each["platform"]["architecture"] for each in manifests] == ["amd64", "arm64"]
    assert {f"blobs/{each['digest'].replace(':', '/')}" for each in manifests} <= contents.keys()


def test_a_signature_names_the_manifest_and_is_verified_by_the_public_key() -> None:
    key = generate_private_key(SECP256R1())
    layout = signing.signature_layout(key, "localhost:5000/barnabas-broker", "sha256:abc")
    manifest = json.loads(blob(layout, layout.root["digest"]))
    (layer,) = manifest["layers"]
    payload = blob(layout, layer["digest"])
    assert json.loads(payload)["critical"]["image"] == {"docker-manifest-digest": "sha256:abc"}
    signature = base64.b64decode(layer["annotations"]["dev.cosignproject.cosign/signature"])
    key.public_key().verify(signature, payload, ECDSA(SHA256()))
    assert signing.tag_of("sha256:abc") == "sha256-abc.sig"


def test_a_key_of_another_curve_is_refused() -> None:
    pem = generate_private_key(SECP384R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with pytest.raises(ReleaseError, match="P-256"):
        signing.key_of(pem, None)


def test_sha256sum_accepts_the_checksums(tmp_path: Path) -> None:
    for name in ("b.tgz", "a.whl"):
        (tmp_path / name).write_bytes(name.encode())
    sums = checksums.lines({path.name: checksums.sha256_of(path) for path in tmp_path.iterdir()})
    (tmp_path / checksums.NAME).write_text(sums)
    checked = subprocess.run(
        ["sha256sum", "--check", checksums.NAME], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert checked.stdout == "a.whl: OK\nb.tgz: OK\n"


def test_the_chart_of_a_release_names_the_images_of_the_release() -> None:
    values = YAML(typ="safe").load(with_images((ROOT / "helm/barnabas/values.yaml").read_text(), "host/path", "0.2.0"))
    assert values["image"]["repository"] + ":" + values["image"]["tag"] == "host/path/barnabas-operator:0.2.0"
    assert values["brokerImage"] == "host/path/barnabas-broker:0.2.0"
    assert values["jobsImage"] == "host/path/barnabas-jobs:0.2.0"


def test_the_chart_is_an_artifact_that_helm_installs() -> None:
    layout = chart_layout(METADATA, b"archive")
    manifest = json.loads(blob(layout, layout.root["digest"]))
    assert json.loads(blob(layout, manifest["config"]["digest"])) == METADATA
    assert manifest["config"]["mediaType"] == "application/vnd.cncf.helm.config.v1+json"
    assert blob(layout, manifest["layers"][0]["digest"]) == b"archive"


def test_only_pushes_to_the_local_machine_use_plain_http() -> None:
    broker = publishing.image("localhost:5000/team", "broker", VERSION)
    signed = publishing.signature(broker, "sha256:abc")
    image, signature = publishing.pushes("dist", [broker, signed])
    assert image[-1] == "docker://localhost:5000/team/barnabas-broker:0.2.0"
    assert signature[-2] == "oci-archive:dist/barnabas-broker-0.2.0.sig.oci.tar:sha256-abc.sig"
    assert "--dest-tls-verify=false" in image
    (chart,) = publishing.pushes("dist", [publishing.chart("registry.example.com", VERSION)])
    assert chart[-1] == "docker://registry.example.com/charts/barnabas:0.2.0"
    assert "--dest-tls-verify=false" not in chart


def test_the_architecture_of_a_file_is_read_from_its_elf_header() -> None:
    own = Path(sys.executable).read_bytes()
    assert machine_of(own) == {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
    assert machine_of(own[:18] + b"\xb7\x00") == "arm64"
    assert machine_of(own[:18] + b"\x28\x00") == "machine 40"
    assert machine_of(b"#!/bin/sh\n" * 3) == ""


def test_a_bill_of_materials_names_the_packages_of_an_image() -> None:
    bom = pytest.importorskip("release.bom")
    described = {
        "./var/lib/dpkg/status.d/libc6": b"Package: libc6\nVersion: 2.36-9\nArchitecture: arm64\nDescription: C\n",
        "opt/barnabas/lib/h11-0.16.0.dist-info/METADATA": b"Name: h11\nVersion: 0.16.0\n\nText.\n",
    }
    assert all(bom.describes(path) for path in described)
    text = bom.bill("barnabas-broker", "0.2.0", bom.packages(described), datetime(2027, 1, 5, tzinfo=UTC))
    assert text == bom.bill("barnabas-broker", "0.2.0", bom.packages(described), datetime(2027, 1, 5, tzinfo=UTC))
    urls = [each["purl"] for each in json.loads(text)["components"]]
    assert sorted(urls) == ["pkg:deb/debian/libc6@2.36-9?arch=arm64", "pkg:pypi/h11@0.16.0"]


def test_the_kubectl_plugin_is_one_file_that_runs_by_itself(tmp_path: Path) -> None:
    packed = plugin.archive(ROOT, 1_700_000_000)
    assert plugin.archive(ROOT, 1_700_000_000) == packed
    (tmp_path / plugin.ARCHIVE).write_bytes(packed)
    with tarfile.open(tmp_path / plugin.ARCHIVE) as tar:
        tar.extractall(tmp_path, filter="data")
    alone = {"PATH": str(Path(sys.executable).parent)}
    ran = subprocess.run([tmp_path / plugin.PROGRAM, "--help"], env=alone, capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("usage: kubectl barnabas ")


@pytest.mark.parametrize(("system", "is_installed"), [("linux", True), ("darwin", True), ("windows", False)])
def test_krew_installs_the_kubectl_plugin_where_python_runs_it(system: str, is_installed: bool) -> None:
    (place,) = krew_manifest(b"")["spec"]["platforms"]
    (rule,) = place["selector"]["matchExpressions"]
    assert (rule["key"], rule["operator"], set(place["selector"])) == ("os", "In", {"matchExpressions"})
    assert (system in rule["values"]) is is_installed


def test_krew_finds_in_the_archive_what_the_manifest_of_the_plugin_names() -> None:
    packed = plugin.archive(ROOT, 1_700_000_000)
    described = krew_manifest(packed)
    assert (f"{described['metadata']['name']}.yaml", described["spec"]["version"]) == (plugin.MANIFEST, "v0.2.0")
    (place,) = described["spec"]["platforms"]
    assert place["sha256"] == hashlib.sha256(packed).hexdigest()
    assert place["uri"].endswith(f"/{plugin.ARCHIVE}")
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        modes = {each.name: each.mode for each in tar.getmembers() if each.isfile()}
    assert {each["from"]: each["to"] for each in place["files"]} == dict.fromkeys(modes, ".")
    assert modes[place["bin"]] & 0o111 == 0o111


def krew_manifest(packed: bytes) -> Any:
    """Return the manifest of an archive as krew reads it."""
    return YAML(typ="safe").load(plugin.manifest(VERSION, hashlib.sha256(packed).hexdigest()))
