"""What the commands for whole topics do, a file each."""
