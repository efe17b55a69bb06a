"""The commands of the operator's package, such as `barnabas up` and `barnabas status`."""
