"""The rules that a history is checked against. The `judge` of each goes through all messages by itself."""
