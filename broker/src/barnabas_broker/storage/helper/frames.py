"""The frames on the pipe between the broker and its helper: a length, then the pickled request or response."""

import pickle
import struct
from typing import Final

LENGTH: Final = struct.Struct(">I")
SIGN_OF_LIFE: Final = LENGTH.pack(0)
"""A frame without content, which a helper sends while it works on a response."""


def frame(value: object) -> bytes:
    """The bytes of one value."""
    body = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(body)) + body
