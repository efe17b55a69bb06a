"""A broker's own place in the cluster: its lease, its registration, its incarnations, where its logs end."""
