"""The rules of a listener for the claims of tokens."""

from typing import NamedTuple


class TokenRules(NamedTuple):
    """The required values of claims, the allowed clock skew in seconds, and the names of the scope and user claims."""

    audiences: tuple[str, ...]
    """A token must name at least one of these audiences; an empty tuple allows any audience."""
    issuer: str | None
    skew_s: int
    scope_claim: str = "scope"
    subject_claim: str = "sub"
