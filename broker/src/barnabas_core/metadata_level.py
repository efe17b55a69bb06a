"""The metadata levels that this version supports: the versions of the format in which brokers write the metadata."""

from typing import Final

METADATA_LEVEL: Final = "barnabas.metadata.version"
"""The name of the feature in Kafka's protocol. The level of the feature is the format of the stored metadata.

At level 1 each topic is one stored document. Level 2 splits large topics into several documents. Level 3 adds
transactions, level 4 groups of the consumer protocol, and level 5 share groups.
"""
METADATA_LEVEL_MIN: Final = 1
METADATA_LEVEL_MAX: Final = 5
