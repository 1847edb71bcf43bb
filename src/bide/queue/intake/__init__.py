"""How messages come in: claim, tend, and sleep until the next."""
