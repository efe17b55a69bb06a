"""The types of the operator's resources, such as Cluster and Topic, and their CRDs."""
