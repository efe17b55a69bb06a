"""From readings to lag, seconds, velocity and status. Pure: no IO; whoever calls tells the time."""
