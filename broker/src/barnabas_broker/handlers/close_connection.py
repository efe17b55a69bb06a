"""The exception with which a handler closes the connection."""


class CloseConnection(Exception):
    """The exception with which a handler closes the connection, for example after a failed Produce with acks=0.

    The message is logged as one line.
    """
