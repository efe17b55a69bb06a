"""The kopf adapter: what the API server tells goes to the workers. No other floor but `app` knows kopf."""
