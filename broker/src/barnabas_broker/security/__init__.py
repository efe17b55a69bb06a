"""The authentication of clients, and the authorization of their requests.

Authorization does no IO; `barnabas_broker.metadata` stores the SCRAM credentials.
"""
