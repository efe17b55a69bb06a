"""The kubectl plugin: only the standard library and kubectl, so that a release has it as one file."""
