"""Another queue of bide as a source: for `bide move`."""
