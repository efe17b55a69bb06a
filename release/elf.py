"""The architecture of a program or library, by the header of its ELF file. Pure."""

from collections.abc import Mapping
from typing import Final

MACHINES: Final[Mapping[int, str]] = {0x3E: "amd64", 0xB7: "arm64"}
"""The architectures by `e_machine`."""
HEADER_BYTES: Final = 20
"""The bytes of the header up to `e_machine`."""


def machine_of(header: bytes) -> str:
    """Return the architecture of a program or library; empty for another file."""
    if not header.startswith(b"\x7fELF") or len(header) < HEADER_BYTES:
        return ""
    number = int.from_bytes(header[18:HEADER_BYTES], "little")
    return MACHINES.get(number, f"machine {number}")
