"""How commands speak: text made safe, lines and columns, times, progress."""
