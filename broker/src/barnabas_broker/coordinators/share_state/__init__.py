"""The share coordinator, which stores the delivery state of the partitions of share groups in `__share_group_state`."""
