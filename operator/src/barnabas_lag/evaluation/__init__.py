"""Compute the lag of groups in records and seconds, its velocity, and the status of groups, without IO."""
