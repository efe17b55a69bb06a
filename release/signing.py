"""Signatures in cosign's format, by a key of ECDSA on P-256: of the file of checksums, and of what is in a registry."""

import base64
import json
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP256R1, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from release.errors import ReleaseError
from release.layout import Content, Layout, artifact, descriptor

PAYLOAD: Final = "application/vnd.dev.cosign.simplesigning.v1+json"
CONFIG: Final = "application/vnd.oci.image.config.v1+json"
SIGNATURE: Final = "dev.cosignproject.cosign/signature"


def key_of(pem: bytes, password: str | None) -> EllipticCurvePrivateKey:
    """Read a private key in PEM."""
    try:
        key = load_pem_private_key(pem, password.encode() if password else None)
    except (TypeError, ValueError) as error:
        raise ReleaseError(f"SIGN_KEY cannot be read ({error}); SIGN_PASSWORD has its password") from error
    if not isinstance(key, EllipticCurvePrivateKey) or not isinstance(key.curve, SECP256R1):
        raise ReleaseError("SIGN_KEY has to be a key of ECDSA on the curve P-256, as `openssl ecparam -genkey` makes")
    return key


def public_key(key: EllipticCurvePrivateKey) -> bytes:
    """Return what a user verifies with, `cosign.pub`."""
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def signature(key: EllipticCurvePrivateKey, data: bytes) -> str:
    """Return the signature of a file as `cosign verify-blob --signature` reads it."""
    return base64.b64encode(key.sign(data, ECDSA(SHA256()))).decode()


def tag_of(digest: str) -> str:
    """Return the tag under which cosign looks for the signature of a manifest."""
    return f"{digest.replace(':', '-')}.sig"


def signature_layout(key: EllipticCurvePrivateKey, repository: str, digest: str) -> Layout:
    """Return the manifest that says that a manifest in this repository is ours."""
    payload = json.dumps(
        {
            "critical": {
                "identity": {"docker-reference": repository},
                "image": {"docker-manifest-digest": digest},
                "type": "cosign container image signature",
            },
            "optional": None,
        }
    ).encode()
    layer = Content(PAYLOAD, payload, {SIGNATURE: signature(key, payload)})
    return artifact(Content(CONFIG, _config(layer)), [layer], {})


def _config(layer: Content) -> bytes:
    rootfs = {"type": "layers", "diff_ids": [descriptor(layer)["digest"]]}
    return json.dumps({"architecture": "", "os": "", "config": {}, "rootfs": rootfs}).encode()
