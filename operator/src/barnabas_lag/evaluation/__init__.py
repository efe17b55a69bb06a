"""The evaluation of readings: lag, seconds, velocity and status. Pure: no IO; the caller passes the time."""
