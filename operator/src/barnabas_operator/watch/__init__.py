"""The kopf adapter: passes events of the API server on to the workers. No other floor but `app` knows kopf."""
