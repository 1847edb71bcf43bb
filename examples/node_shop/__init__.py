"""A shop whose messages are sent from Node and handled in Python."""
