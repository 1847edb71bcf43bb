"""What the commands for messages do, a file each."""
