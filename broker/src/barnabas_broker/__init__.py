"""The broker, in floors; each imports only what is below it. broker/DESIGN.md is the map."""
