"""What the checker holds against a history; each rule's `judge` goes through all messages by itself."""
