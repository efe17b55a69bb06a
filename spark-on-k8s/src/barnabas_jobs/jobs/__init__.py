"""One module for each job, with its options, its result and its `run`."""
