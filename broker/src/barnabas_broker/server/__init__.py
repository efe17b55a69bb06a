"""Accept Kafka clients, dispatch their requests and send the responses; serve metrics and probes over HTTP."""
