"""Makes the settings of a client of the user `admin` from the Secrets of a Cluster."""

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

from e2e.pods.castle import Castle


def secret(castle: Castle, name: str) -> dict[str, str]:
    """Return the content of a Secret."""
    data = json.loads(castle.kubectl("get", "secret", name, "-ojson"))["data"]
    return {key: b64decode(value).decode(errors="replace") for key, value in data.items()}


def administrator(castle: Castle, cluster: str, listener: str, folder: Path) -> dict[str, Any]:
    """Return the settings of a client outside that logs in by SCRAM and trusts the authority of the Secret."""
    found, authority = secret(castle, f"{cluster}-admin"), folder / "ca.crt"
    authority.write_text(found["ca.crt"])
    status = castle.read("cluster", cluster)["status"]
    (bootstrap,) = (each["bootstrapServers"] for each in status["listeners"] if each["name"] == listener)
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(authority),
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "admin",
        "sasl.password": found["password"],
        "log_level": 0,
    }
