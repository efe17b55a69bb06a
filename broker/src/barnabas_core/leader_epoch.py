"""The upper limit for leader epochs, above which an epoch is considered damaged."""

from typing import Final

LEADER_EPOCH_MAX: Final = 2**30
"""The largest valid epoch, below the 31 bits of Kafka's field; one election per second reaches it in 34 years."""
