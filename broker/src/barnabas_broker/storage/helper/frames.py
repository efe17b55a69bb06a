"""How requests and responses lie on the pipe between the broker and its helper: a length, then the pickled value."""

import pickle
import struct
from typing import Final

LENGTH: Final = struct.Struct(">I")


def frame(value: object) -> bytes:
    """The bytes of one value."""
    body = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(body)) + body
