"""Text generation by greedy search, sampling and beam search, with a cache."""
