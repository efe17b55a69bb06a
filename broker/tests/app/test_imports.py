"""What a broker loads only if it needs it; each of these packages takes 1 to 9 MB and lengthens the start."""

import subprocess
import sys

ABSENT = ("aiohttp", "cryptography", "jwt", "re2", "ruamel")
LOADED = """
import sys
import barnabas_broker.app.broker
from barnabas_broker.handlers.table import MESSAGE_HANDLERS, message_handler
for key in MESSAGE_HANDLERS:
    message_handler(key)
print(*(name for name in sys.argv[1:] if name in sys.modules))
"""


def test_a_broker_without_tls_tokens_expressions_and_kubernetes_does_not_load_their_packages() -> None:
    loaded = subprocess.run([sys.executable, "-c", LOADED, *ABSENT], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []
