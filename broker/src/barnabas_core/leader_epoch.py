"""The bound on leader epochs, by which damaged ones are found."""

from typing import Final

LEADER_EPOCH_MAX: Final = 2**30
"""The latest epoch that is believed: a new leader each second takes 34 years to it. Kafka's field has 31 bits."""
