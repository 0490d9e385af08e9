"""The numbers of the papers' runs: one file a family."""
