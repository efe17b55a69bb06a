"""ACLs, the decisions that follow from them, and the authorizer that keeps both."""
