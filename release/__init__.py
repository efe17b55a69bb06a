"""What `make release` puts into `dist/`: modules plan it, `__main__` applies their plans."""
