"""The exceptions that end a job early."""


class JobFailed(Exception):
    """A failure of the job; the text says what was found, what is allowed, and what to do next."""


class Refused(JobFailed):
    """A failure because the job cannot do what the options ask; another attempt would fail in the same way."""


class JobFailedLate(JobFailed):
    """A failure of a continuous job that had run for an hour or more, so that another attempt is likely to succeed."""


class BadOption(Exception):
    """An option that is unknown, missing or wrong; the text names option, value and what is allowed."""
