"""bide and its peers, doing the same work: each peer in an environment of its own, at its documented best settings."""
