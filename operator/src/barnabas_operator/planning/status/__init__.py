"""The status of a Cluster, with its conditions and Events."""
