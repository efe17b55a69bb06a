"""The logs of a broker in its log dirs: lookup, loading, moves between log dirs, stray logs."""
