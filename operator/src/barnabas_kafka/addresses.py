"""Where a cluster is, as people give it on the command line."""

import argparse
import re
from typing import Final

ADDRESSES: Final = re.compile(r"[^,:\s]+:[0-9]{1,5}(,[^,:\s]+:[0-9]{1,5})*")
PORT_MAX: Final = 65_535


def addresses(text: str) -> str:
    """A value of --bootstrap. Raises argparse.ArgumentTypeError."""
    if not ADDRESSES.fullmatch(text) or not all(1 <= int(each.split(":")[1]) <= PORT_MAX for each in text.split(",")):
        allowed = f"HOST:PORT, several separated by commas, each port from 1 to {PORT_MAX}"
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: {allowed}")
    return text
