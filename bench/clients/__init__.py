"""The load generators: each runs a `Job` against a bootstrap address and returns what it counted."""
