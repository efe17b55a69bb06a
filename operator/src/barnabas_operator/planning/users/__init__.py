"""Users: what is to be done about their passwords, ACLs and quotas, and what their Secrets hold."""
