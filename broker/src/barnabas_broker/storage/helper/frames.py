"""The frames on the pipe between the broker and its helper process: a length, then a pickled request or response."""

import pickle
import struct
from typing import Final

LENGTH: Final = struct.Struct(">I")
SIGN_OF_LIFE: Final = LENGTH.pack(0)
"""An empty frame: the helper process sends it while it works on a response, to show that it is not stuck."""


def frame(value: object) -> bytes:
    """Return the frame of a request or response."""
    body = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(body)) + body
