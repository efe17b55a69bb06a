"""The membership of this broker in the cluster: its lease, its registration, its incarnations and its log ends."""
