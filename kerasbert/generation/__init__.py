"""Continuing text: greedy, by sampling and by beam search, over a cache."""
