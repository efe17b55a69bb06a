"""OCI image layouts: how images, the chart and signatures lie in `dist/` and in a registry. Pure."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
INDEX: Final = "application/vnd.oci.image.index.v1+json"
REFERENCE: Final = "org.opencontainers.image.ref.name"
CONTAINERD_NAME: Final = "io.containerd.image.name"
"""The name under which containerd imports an archive."""

Descriptor = Mapping[str, Any]
Blob = bytes | Path


class Content(NamedTuple):
    """A blob that a manifest names: the chart, a signed payload, a config."""

    media_type: str
    data: bytes
    annotations: Mapping[str, str] = {}


class Layout(NamedTuple):
    """A manifest, or an index of some, with every blob below it by its digest."""

    root: Descriptor
    blobs: Mapping[str, Blob]


def descriptor(content: Content) -> Descriptor:
    """Return what names a blob in a manifest: type, digest, size and annotations."""
    digest = f"sha256:{hashlib.sha256(content.data).hexdigest()}"
    named = {"mediaType": content.media_type, "digest": digest, "size": len(content.data)}
    return {**named, "annotations": dict(content.annotations)} if content.annotations else named


def artifact(config: Content, layers: Sequence[Content], annotations: Mapping[str, str]) -> Layout:
    """Return the layout of a manifest with this config and these layers."""
    named = [descriptor(each) for each in (config, *layers)]
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": named[0], "layers": named[1:]}
    if annotations:
        manifest["annotations"] = dict(annotations)
    blobs = {each["digest"]: content.data for each, content in zip(named, (config, *layers), strict=True)}
    return _rooted(MANIFEST, manifest, blobs)


def for_architectures(images: Mapping[str, Layout]) -> Layout:
    """Return the layout of an index with an image for each of these architectures of Linux."""
    manifests = [
        {**image.root, "platform": {"architecture": architecture, "os": "linux"}}
        for architecture, image in images.items()
    ]
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}
    return _rooted(INDEX, index, {digest: blob for image in images.values() for digest, blob in image.blobs.items()})


def files(layout: Layout, name: str) -> Mapping[str, Blob]:
    """Return the files of a layout that holds one artifact under its full name, `REGISTRY/NAME:TAG`."""
    tag = name.rpartition(":")[2]
    root = {**layout.root, "annotations": {REFERENCE: tag, CONTAINERD_NAME: name}}
    return {
        "oci-layout": json.dumps({"imageLayoutVersion": "1.0.0"}).encode(),
        "index.json": json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": [root]}).encode(),
        **{f"blobs/{digest.replace(':', '/')}": blob for digest, blob in layout.blobs.items()},
    }


def _rooted(media_type: str, root: Mapping[str, Any], blobs: Mapping[str, Blob]) -> Layout:
    content = Content(media_type, json.dumps(root).encode())
    named = descriptor(content)
    return Layout(named, {**blobs, named["digest"]: content.data})
