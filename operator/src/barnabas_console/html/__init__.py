"""The pages as typed HTML. Pure: each page is a function of what it shows."""
