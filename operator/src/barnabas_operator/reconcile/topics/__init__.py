"""Topics: the reconcile loop that `barnabas up` and the operator share, and its part in the operator."""
