"""What kopf calls: thin handlers that gather, plan, apply and write the status."""
