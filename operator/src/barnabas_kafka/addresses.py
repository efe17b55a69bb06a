"""Parse the bootstrap addresses of a cluster from the command line."""

import argparse
import re
from typing import Final

ADDRESS: Final = r"(?:[^,:\s\[\]]+|\[[0-9a-fA-F:.]+\]):[0-9]{1,5}"
ADDRESSES: Final = re.compile(f"{ADDRESS}(,{ADDRESS})*")
PORT_MAX: Final = 65_535


def addresses(text: str) -> str:
    """Return a valid value of --bootstrap unchanged. Raise argparse.ArgumentTypeError if the value is invalid."""
    if not ADDRESSES.fullmatch(text) or not all(1 <= _port(each) <= PORT_MAX for each in text.split(",")):
        allowed = f"one or more HOST:PORT or [IPV6]:PORT, separated by commas, with ports from 1 to {PORT_MAX}"
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: {allowed}")
    return text


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])
