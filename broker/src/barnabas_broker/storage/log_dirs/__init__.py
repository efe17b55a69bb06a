"""All logs of a broker in its log dirs: which log is where, loading, moves, strays."""
