"""An engine whose calls are watched: the one place where verbs are wrapped."""
