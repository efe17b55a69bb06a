"""What a broker loads only if it needs it; each of these packages takes 0.2 to 9 MB and lengthens the start."""

import subprocess
import sys

ABSENT = (
    "aiohttp",
    "barnabas_broker.server.metrics.broker_families",
    "cramjam",
    "cryptography",
    "dataclasses",
    "difflib",
    "email",
    "h11",
    "importlib.metadata",
    "jwt",
    "pickle",
    "re2",
    "ruamel",
    "zipfile",
)
LOADED = """
import sys
import barnabas.__main__
import barnabas_broker.app.broker
import barnabas_broker.metadata.store.sqlite_store
from barnabas_broker.handlers.table import MESSAGE_HANDLERS, message_handler
for key in MESSAGE_HANDLERS:
    message_handler(key)
print(*(name for name in sys.argv[1:] if name in sys.modules))
"""


def test_a_broker_loads_no_package_before_its_first_use() -> None:
    loaded = subprocess.run([sys.executable, "-c", LOADED, *ABSENT], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []
