"""The replicas on this broker: leading, following, the high watermark, and the requests that wait for it."""
