"""What a change of metadata turns into: pure functions of the cluster, which return documents or raise ApiError."""
