"""Leader election between operators."""
