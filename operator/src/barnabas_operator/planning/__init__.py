"""The planning: pure functions that compare the declared resources with the cluster and return the steps to take."""
