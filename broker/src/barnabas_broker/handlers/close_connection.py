"""The exception that closes a connection in place of an answer."""


class CloseConnection(Exception):
    """The connection must be closed, for example after a failed Produce with acks=0. The message is one log line."""
