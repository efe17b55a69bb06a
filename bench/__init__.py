"""Side-by-side measurements of Barnabas and its peers: `make bench`, see bench/README.md. Nothing here is a test."""
