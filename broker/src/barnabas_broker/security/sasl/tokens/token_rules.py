"""The rules of one listener for the claims of tokens."""

from typing import NamedTuple


class TokenRules(NamedTuple):
    """The values that claims must have, beside the signature and the times."""

    audiences: tuple[str, ...]
    """A token must name at least one of these; if there are none, it may be for any audience."""
    issuer: str | None
    skew_s: int
    scope_claim: str = "scope"
    subject_claim: str = "sub"
