"""The planning of users: their passwords, ACLs, quotas, certificates and Secrets."""
