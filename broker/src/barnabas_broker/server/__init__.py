"""The sockets of the event loop: accept, frame, dispatch and send for Kafka clients; HTTP for metrics and probes."""
