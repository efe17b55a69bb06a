"""The resources as the watch last reported them, and the operator's metrics."""
