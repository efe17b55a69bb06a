"""What a row does to one peer: each scenario is a frozen value with `measure(stand, peer) -> Measurement`."""
