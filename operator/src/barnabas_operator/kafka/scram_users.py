"""Sets and deletes SCRAM passwords."""

from collections.abc import Collection, Mapping
from typing import Any, Final

from kafka.admin import ScramMechanism, UserScramCredentialDeletion, UserScramCredentialUpsertion

from barnabas_kafka.connection import ClusterUnreachable, reachable

MECHANISM: Final = ScramMechanism.SCRAM_SHA_512


def set_passwords(client: Any, passwords: Mapping[str, str], gone: Collection[str]) -> None:
    """Delete the SCRAM passwords of the users in `gone`; then set `passwords`, a mapping from user to password.

    Raise ClusterUnreachable if no broker answers, or if the brokers refuse to set a password.
    """
    changes = [UserScramCredentialUpsertion(user, MECHANISM, password) for user, password in passwords.items()]
    with reachable():
        client.alter_user_scram_credentials([UserScramCredentialDeletion(user, MECHANISM) for user in gone])
        outcomes = client.alter_user_scram_credentials(changes)
    for user, error in outcomes.items():
        if error is not None:
            raise ClusterUnreachable(f"the password of {user} cannot be set: {error}")
