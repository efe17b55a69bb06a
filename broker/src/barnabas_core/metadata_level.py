"""The levels of the metadata that this version supports: brokers go by them, and the operator knows its own images."""

from typing import Final

METADATA_LEVEL: Final = "barnabas.metadata.version"
"""The feature's name in Kafka's protocol. Its level is the form of the documents that are written.

1: a topic is one document. 2: a large topic has several. 3: `transaction.version` has a level.
"""
METADATA_LEVEL_MIN: Final = 1
METADATA_LEVEL_MAX: Final = 3
