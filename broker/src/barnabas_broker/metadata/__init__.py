"""Cluster state: a store with compare-and-set, watch and leases; its in-memory image; the controller."""
