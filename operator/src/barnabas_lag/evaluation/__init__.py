"""The evaluation of readings: lag, seconds, velocity and status, without IO."""
