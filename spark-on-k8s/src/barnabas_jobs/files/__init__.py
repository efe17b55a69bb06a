"""Files of the jobs: archives, log dirs, segments, and reports."""
