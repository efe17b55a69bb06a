"""The one failure of a release that its maker can mend."""


class ReleaseError(Exception):
    """A release cannot be made; says why, and what to do."""
