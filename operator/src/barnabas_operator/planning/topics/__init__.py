"""The planning of topics: creation, changes, moves of replicas, and deletion."""
