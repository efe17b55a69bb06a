"""The load generators: each runs a `Job` against a bootstrap address and gives what it counted."""
