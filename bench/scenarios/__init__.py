"""The measurements of rows on one peer: each scenario is a frozen value with `measure(stand, peer) -> Measurement`."""
