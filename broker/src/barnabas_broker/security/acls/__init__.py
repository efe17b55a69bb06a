"""ACLs, the index that finds them, and the authorizer that caches the decisions."""
