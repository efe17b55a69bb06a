"""What holds for the tests of all folders."""

from hypothesis import settings

# No test fails because the machine is busy; one that fails prints what replays it.
settings.register_profile("barnabas", deadline=None, print_blob=True)
settings.load_profile("barnabas")
