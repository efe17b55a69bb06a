"""Consumer groups: the state machine of a group, and the coordinator that stores groups in `__consumer_offsets`."""
