"""The election of the operator that acts, of several."""
