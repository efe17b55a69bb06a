"""Serve pages over HTTP and HTTPS; brokers, the lag exporter and the operator share it."""
