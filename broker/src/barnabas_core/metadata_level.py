"""The metadata levels that this version supports: the versions of the format in which brokers write the metadata."""

from typing import Final

METADATA_LEVEL: Final = "barnabas.metadata.version"
"""The name of the feature in Kafka's protocol; its level is the format in which documents are written.

At level 1 a topic is one document. Level 2 splits large topics into several documents. Level 3 has transactions.
"""
METADATA_LEVEL_MIN: Final = 1
METADATA_LEVEL_MAX: Final = 3
