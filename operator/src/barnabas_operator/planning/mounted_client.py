"""The files of a client with a certificate, as pods mount them: a Secret as a folder. Pure."""

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
"""Kafka's client properties, with the files where they are mounted."""
