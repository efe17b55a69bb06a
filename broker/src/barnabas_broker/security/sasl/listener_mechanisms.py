"""Create the SASL mechanisms of a listener from its settings, and report all invalid settings in one error."""

from base64 import b64encode
from collections.abc import Callable, Collection, Iterator, Mapping
from hmac import compare_digest, digest
from typing import Final, NamedTuple, Protocol

import msgspec

from barnabas_broker.security.sasl.scram import (
    MalformedScram,
    Mechanism,
    Plain,
    Scram,
    VerifiedPlain,
    escaped_name,
    parse_server_first,
)
from barnabas_broker.security.sasl.scram_credential import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SCRAM_HASHES,
    SaltShape,
    ScramCredential,
    ScramHash,
    credential_of,
    hashed,
    salted_password,
)
from barnabas_broker.security.sasl.token_keys import FetchTimes, TokenKeys, TokenRules
from barnabas_core.config import security_definitions as names
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.config.definitions import ConfigProblem, InvalidConfig, Value
from barnabas_core.config.listeners import InvalidJaas, JaasEntry, ListenerSecurity, parse_jaas
from barnabas_core.config.security_definitions import BETWEEN_BROKERS, MECHANISMS, OF_SCRAM

OAUTHBEARER: Final = "OAUTHBEARER"
TRUST: Final = "ssl.truststore."
"""The prefix of the JAAS options that configure the truststore for fetching the keys from their URL."""


class OAuthSettings(msgspec.Struct, frozen=True):
    """The URL of the keys, the truststore for the URL, and the rules for tokens."""

    url: str
    trust: Mapping[str, str]
    times: FetchTimes
    rules: TokenRules


def oauth_settings(
    security: ListenerSecurity, options: Mapping[str, str], problems: list[ConfigProblem]
) -> OAuthSettings | None:
    """Return the OAUTHBEARER settings of a listener, from its configs and its JAAS options.

    If the settings are invalid, add the errors to `problems`, and return None.
    """
    values = {name: security.value(name, OAUTHBEARER) for name in names.OAUTH_CONFIGS}
    found = [*_problems(security, values), *_refused_options(security, options)]
    problems += found
    if found:
        return None
    return OAuthSettings(
        url=str(values[names.KEYS_URL]),
        trust={name: value for name, value in options.items() if name.startswith(TRUST)},
        times=FetchTimes(
            refresh_s=_number(values[names.REFRESH_MS]) / 1000,
            backoff_s=_number(values[names.RETRY_BACKOFF_MS]) / 1000,
            backoff_s_max=_number(values[names.RETRY_BACKOFF_MAX_MS]) / 1000,
        ),
        rules=TokenRules(
            audiences=() if values[names.ALLOW_ANY_AUDIENCE] else _words(values[names.EXPECTED_AUDIENCE]),
            issuer=None if values[names.ALLOW_ANY_ISSUER] else str(values[names.EXPECTED_ISSUER]),
            skew_s=_number(values[names.CLOCK_SKEW_SECONDS]),
            scope_claim=str(values[names.SCOPE_CLAIM_NAME]),
            subject_claim=str(values[names.SUB_CLAIM_NAME]),
        ),
    )


def _problems(security: ListenerSecurity, values: Mapping[str, Value]) -> list[ConfigProblem]:
    found = []
    url = values[names.KEYS_URL]
    if url is None:
        found.append((names.KEYS_URL, "must be set to the URL of the keys that verify tokens"))
    elif not str(url).startswith("file:") and url not in _words(values[names.ALLOWED_URLS]):
        found.append((names.KEYS_URL, f"must be a file: URL, or one of the URLs in {names.ALLOWED_URLS}"))
    if not values[names.EXPECTED_AUDIENCE] and not values[names.ALLOW_ANY_AUDIENCE]:
        found.append((names.EXPECTED_AUDIENCE, f"must be set, unless {names.ALLOW_ANY_AUDIENCE}=true"))
    if not values[names.EXPECTED_ISSUER] and not values[names.ALLOW_ANY_ISSUER]:
        found.append((names.EXPECTED_ISSUER, f"must be set, unless {names.ALLOW_ANY_ISSUER}=true"))
    return [security.problem(name, allowed, OAUTHBEARER) for name, allowed in found]


def _refused_options(security: ListenerSecurity, options: Mapping[str, str]) -> list[ConfigProblem]:
    """Return a problem for each JAAS option that would accept unsigned tokens in Kafka."""
    setting = security.setting("sasl.jaas.config", OAUTHBEARER)
    refused = (name for name in options if name.startswith("unsecured"))
    return [
        ConfigProblem(setting, None, f"must not have {name}, because unsigned tokens are never accepted")
        for name in refused
    ]


def _number(value: Value) -> int:
    assert isinstance(value, int), "a setting of type int must have been parsed into an int"
    return value


def _words(value: Value) -> tuple[str, ...]:
    assert isinstance(value, tuple), "a setting of type list must have been parsed into a tuple"
    return value


ENABLED: Final = "sasl.enabled.mechanisms"
JAAS: Final = "sasl.jaas.config"
PLAIN_CREDENTIALS: Final = "sasl.plain.credentials"
_PLAIN: Final = "PLAIN"
_BY_PREFERENCE: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256")
"""The SCRAM mechanisms whose verifiers PLAIN uses to check passwords. If a user has verifiers for both, PLAIN uses
SCRAM-SHA-512."""


class SaslEnvironment(NamedTuple):
    """The values and functions that mechanisms need besides the settings of their listener."""

    credentials: Mapping[tuple[str, str], ScramCredential]
    """The current SCRAM verifiers by user and mechanism."""
    secret: bytes
    """A secret that all brokers of the cluster share."""
    new_nonce: Callable[[], str]
    open_keys: Callable[[OAuthSettings], TokenKeys]
    """A function that returns the keys that verify tokens."""
    now_ms: Callable[[], int]
    shapes: Callable[[str], Collection[SaltShape]] = lambda _: ()
    """A function that takes a mechanism, and returns the pairs (salt length, iteration count) of its verifiers."""


def listener_mechanisms(security: ListenerSecurity, environment: SaslEnvironment) -> Mapping[str, Mechanism]:
    """Return the enabled mechanisms of a SASL listener by name. Raise InvalidConfig if a setting is invalid."""
    names = security.value(ENABLED)
    assert isinstance(names, tuple), "a setting of type list must have been parsed into a tuple"
    problems: list[ConfigProblem] = []
    if not names or any(name not in MECHANISMS for name in names):
        allowed = f"must name at least one of {', '.join(MECHANISMS)} for the listener {security.name}"
        problems.append(ConfigProblem(security.setting(ENABLED), ",".join(names), allowed))
    entries = {name: jaas_entry(security, name, problems) for name in dict.fromkeys(names) if name in MECHANISMS}
    if _PLAIN in entries and has_plain_of_scram(security):
        problems += _problems_of_scram(security, entries[_PLAIN])
    oauth = oauth_settings(security, entries[OAUTHBEARER].options, problems) if OAUTHBEARER in entries else None
    if problems:
        raise InvalidConfig(problems)
    return {name: _mechanism(name, each, security, environment, oauth) for name, each in entries.items()}


def has_plain_of_scram(security: ListenerSecurity) -> bool:
    """True if PLAIN on this listener checks the passwords of SCRAM users."""
    return security.value(PLAIN_CREDENTIALS) == OF_SCRAM


def _problems_of_scram(security: ListenerSecurity, entry: JaasEntry) -> Iterator[ConfigProblem]:
    """Yield the problems in the settings of the mechanism PLAIN if PLAIN checks the passwords of SCRAM users."""
    if not security.protocol.has_tls:
        yield security.problem(
            PLAIN_CREDENTIALS, "needs a listener with SASL_SSL, because PLAIN sends passwords in clear"
        )
    if entry.users:
        allowed = (
            f"must not declare users if {PLAIN_CREDENTIALS}={OF_SCRAM} is set, because PLAIN then accepts SCRAM users"
        )
        yield security.problem(JAAS, allowed, _PLAIN)


def _mechanism(
    name: str, entry: JaasEntry, security: ListenerSecurity, environment: SaslEnvironment, oauth: OAuthSettings | None
) -> Mechanism:
    if name == OAUTHBEARER:
        # The import is here because it lengthens the start of a broker by a third, and only OAUTHBEARER needs it.
        from barnabas_broker.security.sasl.oauth_bearer import OAuthBearer

        assert oauth is not None, "the OAUTHBEARER settings must have been checked"
        return OAuthBearer(environment.open_keys(oauth), oauth.rules, environment.now_ms)
    if name in SCRAM_HASHES:
        return _scram(name, environment)
    if has_plain_of_scram(security):
        return VerifiedPlain([_scram(each, environment) for each in _BY_PREFERENCE], environment.new_nonce().encode())
    return Plain(entry.users)


def _scram(name: str, environment: SaslEnvironment) -> Scram:
    def credential_of(user: str) -> ScramCredential | None:
        stored = environment.credentials.get((user, name))
        return None if stored is None else stored.at(environment.now_ms())

    return Scram(
        SCRAM_HASHES[name],
        credential_of,
        environment.secret,
        environment.new_nonce,
        lambda: environment.shapes(name),
    )


def jaas_entry(security: ListenerSecurity, mechanism: str, problems: list[ConfigProblem]) -> JaasEntry:
    """Return the JAAS entry of a mechanism, and append its errors to `problems`.

    Only PLAIN requires an entry, unless PLAIN checks the passwords of SCRAM users. The name of the JAAS setting must
    include the mechanism; as in Kafka, a JAAS setting for the whole listener is ignored.
    """
    family = mechanism.partition("-")[0]
    setting = f"listener.name.{security.name.lower()}.{mechanism.lower()}.{JAAS}"
    text = security.texts.get(setting)
    if text is None:
        if family == _PLAIN and not has_plain_of_scram(security):
            problems.append(ConfigProblem(setting, None, "must be set, with the users and their passwords"))
        return JaasEntry(family, {})
    try:
        entry = parse_jaas(text)
    except InvalidJaas as error:
        problems.append(ConfigProblem(setting, None, str(error)))
        return JaasEntry(family, {})
    if entry.family != family:
        allowed = f"must have the login module of {mechanism}, not of {entry.family}"
        problems.append(ConfigProblem(setting, None, allowed))
    return entry


INTER_BROKER_MECHANISM: Final = "sasl.mechanism.inter.broker.protocol"


class LoginFailed(Exception):
    """The error of a login that has failed.

    The server refused the login, violated the protocol, or did not prove that it knows the password.
    """


class Login(Protocol):
    """One attempt to log in."""

    @property
    def mechanism(self) -> str:
        """The SASL mechanism of the login."""
        ...

    def next_token(self, challenge: bytes) -> bytes | None:
        """Return the next SASL token to send to the server, or None when the login is complete.

        The `challenge` is empty for the first token. Raises LoginFailed if the server refuses the login or violates the
        protocol.
        """
        ...


class PlainLogin:
    """A PLAIN login: one token with user and password."""

    mechanism = "PLAIN"

    def __init__(self, user: str, password: str) -> None:
        self._token: bytes | None = f"\0{user}\0{password}".encode()

    def next_token(self, challenge: bytes) -> bytes | None:
        """Return the token at the first call, then None."""
        if challenge:
            raise LoginFailed("the other broker sent a challenge, which the PLAIN mechanism does not have")
        token, self._token = self._token, None
        return token


class ScramLogin:
    """A SCRAM login: client and server prove to each other that they know the password."""

    def __init__(self, kind: ScramHash, user: str, password: str, nonce: str) -> None:
        self.mechanism = kind.mechanism
        self._kind, self._password, self._nonce = kind, password, nonce
        self._first = f"n={escaped_name(user)},r={nonce}"
        self._verifier: bytes | None = None
        self._has_begun = False

    def next_token(self, challenge: bytes) -> bytes | None:
        """Return the client's first message at the first call, the proof at the second call, and None at the third."""
        if not self._has_begun:
            self._has_begun = True
            return f"n,,{self._first}".encode()
        if self._verifier is None:
            return self._proof(challenge)
        if not compare_digest(challenge, self._verifier):
            raise LoginFailed("the other broker did not prove that it knows the password")
        return None

    def _proof(self, challenge: bytes) -> bytes:
        try:
            server = parse_server_first(challenge)
        except MalformedScram as error:
            raise LoginFailed(str(error)) from error
        if not server.nonce.startswith(self._nonce) or not ITERATIONS_MIN <= server.iterations <= ITERATIONS_MAX:
            raise LoginFailed(
                "the server's first message has a nonce that does not begin with the nonce of this broker, or a number "
                f"of iterations that is not allowed: {server.iterations}"
            )
        function = self._kind.function
        salted = salted_password(self._kind, self._password, server.salt, server.iterations)
        server_key = credential_of(self._kind, salted, server.salt, server.iterations).server_key
        unproved = f"c=biws,r={server.nonce}"
        messages = f"{self._first},{challenge.decode()},{unproved}".encode()
        client_key = digest(salted, b"Client Key", function)
        signature = digest(hashed(self._kind, client_key), messages, function)
        self._verifier = b"v=" + b64encode(digest(server_key, messages, function))
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return f"{unproved},p={b64encode(proof).decode()}".encode()


def login_between_brokers(config: BrokerConfig, new_nonce: Callable[[], str]) -> Callable[[], Login] | None:
    """Return a function that creates logins for the inter-broker listener; None if the listener has no SASL.

    Raise InvalidConfig if the settings of the login are invalid.
    """
    security = config.listener_security(config.listeners.inter_broker)
    if not security.protocol.has_sasl:
        return None
    mechanism, enabled = config.sasl_mechanism_inter_broker_protocol, security.value(ENABLED)
    assert isinstance(enabled, tuple), "a setting of type list must have been parsed into a tuple"
    if mechanism not in BETWEEN_BROKERS or mechanism not in enabled:
        allowed = f"must be one of the mechanisms in {security.setting(ENABLED)}={','.join(enabled)}"
        raise InvalidConfig([ConfigProblem(INTER_BROKER_MECHANISM, mechanism, allowed)])
    problems: list[ConfigProblem] = []
    options = jaas_entry(security, mechanism, problems).options
    user, password = options.get("username"), options.get("password")
    if not problems and (not user or not password):
        setting = f"listener.name.{security.name.lower()}.{mechanism.lower()}.{JAAS}"
        problems.append(
            ConfigProblem(setting, None, "must have username and password for this broker's login at other brokers")
        )
    if problems or not user or not password:
        raise InvalidConfig(problems)
    if mechanism in SCRAM_HASHES:
        return lambda: ScramLogin(SCRAM_HASHES[mechanism], user, password, new_nonce())
    return lambda: PlainLogin(user, password)
