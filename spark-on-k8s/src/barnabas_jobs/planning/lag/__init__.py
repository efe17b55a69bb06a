"""What groups have committed, how far they were behind when they did, and how that went over time. Pure."""
