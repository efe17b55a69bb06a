"""The floor that authenticates clients and authorizes their requests.

Authorization is pure; credentials come from the metadata floor.
"""
