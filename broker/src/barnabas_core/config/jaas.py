"""Parse the value of sasl.jaas.config: one login module with its options, in Java's syntax.

No Java class is loaded; only three names of login modules are accepted.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

_PACKAGE: Final = "org.apache.kafka.common.security."
MODULES: Final[Mapping[str, str]] = {
    "plain.PlainLoginModule": "PLAIN",
    "scram.ScramLoginModule": "SCRAM",
    "oauthbearer.OAuthBearerLoginModule": "OAUTHBEARER",
}
FLAGS: Final = ("required", "requisite", "sufficient", "optional")
FORM: Final = 'must be MODULE required NAME="VALUE" ... ;'
_USER_PREFIX: Final = "user_"
_TOKEN: Final = re.compile(
    r"""(?P<blank>\s+|//[^\n]*|/\*.*?\*/)|(?P<word>[\w.$-]+)|"(?P<double>(?:[^"\\\n]|\\.)*)"|'(?P<single>(?:[^'\\\n]|\\.)*)'|(?P<sign>[=;])""",
    re.DOTALL,
)
_NUMBER: Final = re.compile(r"-?[0-9.]+")
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}


class InvalidJaas(Exception):
    """The error that a JAAS text is invalid; the message contains no value of an option."""


@dataclass(frozen=True, slots=True)
class JaasEntry:
    """A login module: its family of mechanisms, and its options, whose values are secrets."""

    family: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def users(self) -> Mapping[str, str]:
        """The passwords of PLAIN users, by user name."""
        prefix = len(_USER_PREFIX)
        return {name[prefix:]: value for name, value in self.options.items() if name.startswith(_USER_PREFIX)}


def parse_jaas(text: str) -> JaasEntry:
    """Parse a JAAS text with exactly one login module. Raise InvalidJaas."""
    tokens = list(_tokens(text))
    if not tokens or tokens[-1] != (";", True):
        raise InvalidJaas(f"{FORM} It must end in ;")
    words = tokens[:-1]
    if (";", True) in words:
        raise InvalidJaas("must have exactly one login module")
    if len(words) < 2 or words[0][1] or words[1][1] or words[1][0].lower() not in FLAGS:
        raise InvalidJaas(f"{FORM} The word after the module must be one of {', '.join(FLAGS)}")
    return JaasEntry(_family(words[0][0]), dict(_options(words[2:])))


def _family(module: str) -> str:
    family = MODULES.get(module.removeprefix(_PACKAGE)) if module.startswith(_PACKAGE) else None
    if family is None:
        allowed = ", ".join(_PACKAGE + each for each in MODULES)
        raise InvalidJaas(f"{module} is not a supported login module; must be one of {allowed}")
    return family


def _options(words: list[tuple[str, bool]]) -> Iterator[tuple[str, str]]:
    for index in range(0, len(words), 3):
        option = words[index : index + 3]
        if len(option) < 3 or option[1] != ("=", True) or option[0][1] or option[2][1]:
            raise InvalidJaas(f'{FORM} Option {index // 3 + 1} must be NAME="VALUE"')
        yield option[0][0], option[2][0]


def _tokens(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the text of each token, and True if the token is one of the signs `=` and `;`. Raise InvalidJaas."""
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise InvalidJaas(f"{FORM} Character {position + 1} must begin a word or a quoted text, or be = or ;")
        position = match.end()
        if match["blank"]:
            continue
        if match["sign"]:
            yield match["sign"], True
        elif match["word"] is not None:
            if _NUMBER.fullmatch(match["word"]):
                raise InvalidJaas(f"{FORM} The number before character {position + 1} must be in quotes")
            yield match["word"], False
        else:
            yield _unescaped(match["double"] if match["double"] is not None else match["single"]), False


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: _ESCAPES.get(match[1], match[1]), text)
