"""The process of the console: options, sessions, collectors and HTTP."""
