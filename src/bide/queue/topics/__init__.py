"""The verbs for whole topics, and for looking at what is stored."""
