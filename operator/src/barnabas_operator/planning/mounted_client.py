"""The files of a TLS client that pods mount from a Secret."""

from collections.abc import Mapping
from typing import Final

VOLUME: Final = "barnabas-client"
FOLDER: Final = "/etc/barnabas-client"
AUTHORITIES: Final = "ca.crt"
KEYSTORE: Final = "client.pem"
SETTINGS: Final = "client.properties"
SETTINGS_PATH: Final = f"{FOLDER}/{SETTINGS}"
CLIENT_PROPERTIES: Final[Mapping[str, str]] = {
    "security.protocol": "SSL",
    "ssl.truststore.type": "PEM",
    "ssl.truststore.location": f"{FOLDER}/{AUTHORITIES}",
    "ssl.keystore.type": "PEM",
    "ssl.keystore.location": f"{FOLDER}/{KEYSTORE}",
}
"""The Kafka client properties for a pod that mounts the Secret at `FOLDER`."""
