"""The decisions about topics. Pure."""
