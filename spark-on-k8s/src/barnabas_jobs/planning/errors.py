"""Why a job ends early."""


class JobFailed(Exception):
    """The job cannot go on. The text says what was found, what is allowed, and what to do next."""


class BadOption(Exception):
    """An option is unknown, missing or wrong; the text names it, its value and what is allowed."""
