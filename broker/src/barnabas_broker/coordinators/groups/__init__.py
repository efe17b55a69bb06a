"""Consumer groups: a pure state machine for each, and the runtime that writes its decisions to `__consumer_offsets`."""
