"""SASL: the mechanisms, their JAAS configuration, and the credentials of users."""
