"""The operator, which reconciles resources such as Cluster and Topic by requests to Kubernetes and to brokers."""
