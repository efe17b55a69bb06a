"""SASL: the mechanisms, the JAAS lines that configure them, and the credentials that they ask for."""
