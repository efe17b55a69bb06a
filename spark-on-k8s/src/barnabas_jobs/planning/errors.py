"""The exceptions that end a job early."""


class JobFailed(Exception):
    """The job cannot go on. The text says what was found, what is allowed, and what to do next."""


class Refused(JobFailed):
    """The job cannot do what was asked for, and another try would fail in the same way."""


class JobFailedLate(JobFailed):
    """A job without an end failed after it had gone well for long: that says nothing of the next try."""


class BadOption(Exception):
    """An option is unknown, missing or wrong; the text names it, its value and what is allowed."""
