"""A source in a database: a table that somebody polls."""
