"""The bound on leader epochs, by which damaged ones are found."""

from typing import Final

LEADER_EPOCH_MAX: Final = 2**30
"""No partition gets that far: a leader each second takes 34 years. Later epochs still fit into Kafka's 32 bits."""
