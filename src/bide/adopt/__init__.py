"""Moves what waits in another delay system into a queue, while its old producers and consumers go on."""
