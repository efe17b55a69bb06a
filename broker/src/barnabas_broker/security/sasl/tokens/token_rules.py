"""The rules of one listener for the claims of tokens."""

from typing import NamedTuple


class TokenRules(NamedTuple):
    """The values that claims must have, beside the signature and the times."""

    audiences: tuple[str, ...]
    """A token names at least one of these; where there are none, it may be for anybody."""
    issuer: str | None
    skew_s: int
    scope_claim: str = "scope"
    subject_claim: str = "sub"
