"""Share groups: membership, assignment, and the initialization of the state of their partitions (KIP-932)."""
