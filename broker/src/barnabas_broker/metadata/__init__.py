"""The cluster's metadata: the metadata store, its image in memory, the membership of brokers, and the controller."""
