"""The broker process, and the commands that restore lost topics or delete their logs."""
