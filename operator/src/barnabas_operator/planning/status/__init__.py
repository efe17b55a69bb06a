"""The words of a status, of its conditions and of Events."""
