"""Lines to a server: connections that each carry one operation at a time, and see it through."""
