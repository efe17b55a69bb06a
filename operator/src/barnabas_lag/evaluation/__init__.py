"""The evaluation of readings: lag, seconds, velocity and status. Pure: the caller passes the time."""
