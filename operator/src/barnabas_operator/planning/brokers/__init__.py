"""What to do with a Cluster's brokers, their settings, pods and disks, and why not."""
