"""One file an API: a request in, a response out."""
