"""The exception by which the maker of an answer says that there will be none."""


class CloseConnection(Exception):
    """The only answer left is to close, such as where an acks=0 produce failed. The message is one line in the log."""
