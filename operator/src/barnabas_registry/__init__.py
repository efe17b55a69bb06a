"""The schemas of a schema registry, and the content of messages that name one. It opens no connection."""
