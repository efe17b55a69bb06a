"""How requests and responses lie on the pipe between the broker and its helper: a length, then the pickled value."""

import pickle
import struct
from typing import Final

LENGTH: Final = struct.Struct(">I")
SIGN_OF_LIFE: Final = LENGTH.pack(0)
"""In place of a response, from a helper that is at work on one."""


def frame(value: object) -> bytes:
    """The bytes of one value."""
    body = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(body)) + body
