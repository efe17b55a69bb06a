"""The delivery of share groups at the leaders of partitions (KIP-932): locks, acknowledgements and dead letters."""
