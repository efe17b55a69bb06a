"""Users: one reconciliation that `barnabas up` and the operator share, and its part in the operator."""
