"""The event loop's sockets: accept, frame, dispatch, send; HTTP for metrics and health."""
