"""The decisions on changes of metadata: pure functions that return new documents or raise ApiError."""
