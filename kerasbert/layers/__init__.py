"""Layers that do not depend on a model family; families outside this package can be built from them as well."""

from ..core.initializers import sinusoidal_table
from .attention import MultiHeadAttention, attend
from .cache import advanced, caches_of, causal_inputs, empty_cache
from .composite import Composite, Layer
from .dense import Dense, tied_logits
from .dropout import Dropout
from .embeddings import first_tokens, gather_positions, last_tokens, mean_tokens
from .extras import Extras
from .feed_forward import FeedForward, GatedFeedForward
from .heads import (
    FirstTokenClassifier,
    LastTokenHead,
    MaskedLMHead,
    PooledClassifier,
    SpanBoundaryHead,
    TiedLMHead,
    TokenHead,
    UntiedLMHead,
)
from .masks import AttentionMask
from .positions import Rotation, token_positions

__all__ = [
    "AttentionMask",
    "Composite",
    "Dense",
    "Dropout",
    "Extras",
    "FeedForward",
    "FirstTokenClassifier",
    "GatedFeedForward",
    "LastTokenHead",
    "Layer",
    "MaskedLMHead",
    "MultiHeadAttention",
    "PooledClassifier",
    "Rotation",
    "SpanBoundaryHead",
    "TiedLMHead",
    "TokenHead",
    "UntiedLMHead",
    "advanced",
    "attend",
    "caches_of",
    "causal_inputs",
    "empty_cache",
    "first_tokens",
    "gather_positions",
    "last_tokens",
    "mean_tokens",
    "sinusoidal_table",
    "tied_logits",
    "token_positions",
]
