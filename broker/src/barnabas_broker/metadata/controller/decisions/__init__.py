"""The decisions on changes of metadata: pure functions of the cluster, which return documents or raise ApiError."""
