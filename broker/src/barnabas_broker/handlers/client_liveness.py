"""Whether somebody reads the answer that is being made."""

from enum import Enum, auto


class ClientLiveness(Enum):
    """The client of a request, as its connection tells."""

    WAITS = auto()
    MAY_WAIT = auto()
    """It has ended its side of the connection. TCP does not tell whether it has closed, or only sends no more."""
    IS_GONE = auto()
