"""Map the DN of a certificate to a user name by the rules of ssl.principal.mapping.rules (KIP-371)."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

DN_CHARACTERS_MAX: Final = 4096
"""The longest DN to which rules are applied, because a regular expression may take long on a long text."""
_RULE: Final = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(,|$)")
_GROUP: Final = re.compile(r"\$([0-9])")
_FORM: Final = (
    "must be rules separated by commas, each DEFAULT or RULE:PATTERN/REPLACEMENT/ with an optional L or U at its end"
)


@dataclass(frozen=True, slots=True)
class PrincipalRule:
    """A mapping rule; DEFAULT keeps the whole DN."""

    pattern: re.Pattern[str]
    replacement: str
    change_case: Callable[[str], str]

    def name_of(self, dn: str) -> str | None:
        """Return the user name for a certificate's DN; None if the rule's pattern does not match the whole DN."""
        match = self.pattern.fullmatch(dn)
        if match is None:
            return None

        def group(found: re.Match[str]) -> str:
            number = int(found[1])
            return (match[number] or "") if number <= self.pattern.groups else found[0]

        return self.change_case(_GROUP.sub(group, self.replacement))


def parse_principal_rules(text: str) -> tuple[PrincipalRule, ...]:
    """Return the rules in the order of the setting. Raise ValueError if a rule or its pattern is malformed."""
    rules: list[PrincipalRule] = []
    position = 0
    while position < len(text) or not rules:
        match = _RULE.match(text, position)
        if match is None:
            raise ValueError(f"{text[position:]}: {_FORM}")
        rules.append(_rule(match))
        position = match.end()
    return tuple(rules)


def _rule(match: re.Match[str]) -> PrincipalRule:
    if match[1]:
        return PrincipalRule(re.compile("(.*)", re.DOTALL), "$1", str)
    pattern, replacement = match[2].replace(r"\/", "/"), match[3].replace(r"\/", "/")
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern} is not a regular expression: {error}") from error
    return PrincipalRule(compiled, replacement, _CASES[match[4]])


_CASES: Final[Mapping[str, Callable[[str], str]]] = {"": str, "L": str.lower, "U": str.upper}


def name_by_rules(dn: str, rules: tuple[PrincipalRule, ...]) -> str | None:
    """Return the user name from the first matching rule; None if no rule matches or the DN is too long."""
    if len(dn) > DN_CHARACTERS_MAX:
        return None
    return next((name for rule in rules if (name := rule.name_of(dn)) is not None), None)
