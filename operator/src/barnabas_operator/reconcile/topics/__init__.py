"""The reconciliation of topics, which `barnabas up` and the operator share."""
