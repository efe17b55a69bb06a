"""What the API server says of an object, in the words of the Cluster that it was made from. Pure."""

import re
from typing import Final

_ABOUT: Final = re.compile(
    r'^\S+ "[^"]*" is invalid: |^.*: strict decoding error: '
    r"|^failed to create typed patch object \([^)]*\): (errors:\s*)?\."
)
_FIELDS: Final = (
    (r"spec\.template\.spec\.containers\[0\]\.resources", "spec.brokers.resources"),
    (r"spec\.template\.spec\.containers\[0\]", "spec.template.brokerContainer"),
    (r"spec\.template\.spec\b", "spec.template.pod.spec"),
    (r"spec\.template(?:\.metadata)?\.(labels|annotations)", r"spec.template.pod.metadata.\1"),
)


def in_words_of_the_cluster(message: str) -> str:
    """Its fields where they are the Cluster's; the others are the operator's own and stay as they are."""
    said = _ABOUT.sub("", message)
    for theirs, ours in _FIELDS:
        said = re.sub(theirs, ours, said)
    return said
