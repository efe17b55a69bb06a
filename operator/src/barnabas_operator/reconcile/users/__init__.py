"""The reconciliation of users, which `barnabas up` and the operator share."""
