"""The commands, family by family: their options and their help. The work is done elsewhere, and loaded only then."""
