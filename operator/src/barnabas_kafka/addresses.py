"""Where a cluster is, as people give it on the command line."""

import argparse
import re
from typing import Final

ADDRESSES: Final = re.compile(r"[^,:\s]+:[0-9]{1,5}(,[^,:\s]+:[0-9]{1,5})*")


def addresses(text: str) -> str:
    """A value of --bootstrap. Raises argparse.ArgumentTypeError."""
    if not ADDRESSES.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: HOST:PORT, several separated by commas")
    return text
