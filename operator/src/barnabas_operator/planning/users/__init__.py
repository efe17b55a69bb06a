"""Users: the plans for their passwords, ACLs and quotas, and the content of their Secrets."""
