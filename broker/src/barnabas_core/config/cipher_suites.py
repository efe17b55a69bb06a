"""The strong cipher suites with Java's names, which ssl.cipher.suites uses, and with OpenSSL's names."""

from collections.abc import Mapping
from typing import Final

TLS_1_3_SUITES: Final = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
TLS_1_2_SUITES: Final[Mapping[str, str]] = {
    f"TLS_ECDHE_{key}_WITH_{java}": f"ECDHE-{key}-{openssl}"
    for key in ("ECDSA", "RSA")
    for java, openssl in (
        ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
    )
}
STRONG: Final = ":".join(TLS_1_2_SUITES.values())
