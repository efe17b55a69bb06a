"""Which of several operators acts."""
