"""Settings: their definitions, how a file of them is read, and the typed values that the rest of the code uses."""
