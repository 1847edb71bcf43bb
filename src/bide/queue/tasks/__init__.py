"""Tasks: functions that messages are for. What is sent is a message like any other; what is here ties it to a function."""
