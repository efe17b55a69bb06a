"""ACLs, the decisions on what clients may do that follow from them, and the authorizer that keeps both."""
