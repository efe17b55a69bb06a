"""The log of one partition: appends, reads, recovery, truncation, retention, leader epochs."""
