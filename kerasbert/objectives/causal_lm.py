"""Causal language modelling: the next token from those before it."""

import tempfile

import keras
import numpy as np
from keras import ops

from ..data import CausalLMBatches
from ..data.corpora import Corpus
from ..layers.embeddings import gather_positions
from ..layers.masks import real_tokens
from .objective import Objective, Perplexity, cross_entropy


@keras.saving.register_keras_serializable("kerasbert")
class CausalLM(Objective):
    """Predicts every token from those before it (Radford et al. 2018, section 3.1), and so continues text.

    The targets are aligned in the data: y at a position is the token that follows it.

    Args:
        backbone: a backbone with a `causal_lm` head.
        tokenizer: for text.

    Call:
        inputs: a batch; without `masked_positions` every position is predicted.

    Returns: logits, float (b, s, v), or (b, p, v) with `masked_positions`.
    """

    def __init__(self, backbone, tokenizer=None, **kwargs):
        super().__init__(backbone, tokenizer, **kwargs)
        self.causal_lm = backbone.make_head("causal_lm")
        self.accuracy = keras.metrics.Mean(name="accuracy")
        self.perplexity = Perplexity(name="perplexity")
        self.build_now()

    def call(self, inputs):
        x = self.backbone(inputs)["sequence_output"]
        if inputs.get("masked_positions") is not None:
            x = gather_positions(x, inputs["masked_positions"])
        return self.causal_lm(x, self.backbone.token_table)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        weights = self._default_weights(x, y) if sample_weight is None else sample_weight
        weights = ops.cast(weights, "float32")
        losses = cross_entropy(y_pred, y)
        right = ops.cast(ops.argmax(y_pred, axis=-1), y.dtype) == y
        self.perplexity.update_state(losses, weights)
        self.accuracy.update_state(ops.cast(right, "float32"), weights)
        return self.mean_loss(x, losses, weights)

    def _default_weights(self, x, y):
        if x.get("masked_positions") is not None:
            return x["masked_positions"] >= 0
        real = real_tokens(x)
        return ops.ones_like(y) if real is None else real

    # === Generation ===

    def generate(
        self,
        prompts,
        max_new_tokens=None,
        min_new_tokens=0,
        num_beams=1,
        length_penalty=1.0,
        early_stopping=False,
        sample=False,
        temperature=1.0,
        top_k=None,
        top_p=None,
        num_sequences=1,
        stop_ids=None,
        seed=0,
        batch_size=32,
        scores=False,
    ):
        """Continues prompts: the likeliest token each time, unless beams or samples are asked for.

        Args:
            prompts: a str or a list of them, or token ids: one sequence or a list of them. Lengths may differ.
            max_new_tokens: most tokens to add; default: as many as the position table has room for, up to 64.
            min_new_tokens: tokens before a stop token may come.
            num_beams: above 1, beam search: so many continuations are kept, and the best one is the answer.
            length_penalty: beams are compared by log probability / length ** length_penalty.
            early_stopping: True ends a search when `num_beams` continuations have ended; False when what still runs
                looks no better, at its present length; "never" when it cannot become better.
            sample: draw from the distribution instead of taking its peak, ...
            temperature: ... of the logits divided by this, ...
            top_k: ... of the k likeliest tokens, ...
            top_p: ... of the fewest tokens that hold this share of the probability.
            num_sequences: continuations a prompt: samples, or the best of the beams.
            stop_ids: tokens that end a continuation; default: the config's or the tokenizer's `eos_id`; () for none.
            seed: of the samples; the same seed draws the same tokens on every backend.
            batch_size: prompts decoded at once.
            scores: also give scores: the log probability of the continuation, divided as above by beam search.

        Returns: for each prompt the text with its continuation, a str; or the ids, int32, with the stop token. With
            `scores` a dict of that ("text" or "token_ids") and "score"; with `num_sequences` above 1 a list of them,
            best first. For one prompt, its answer alone.
        """
        from ..generation.decoding import generate
        from ..generation.search import Options

        if not hasattr(self.backbone, "empty_cache"):
            raise ValueError(
                "Generation needs a causal backbone with a cache, such as Gpt2. Received: a "
                f"{type(self.backbone).__name__}, which has none."
            )
        ids, is_text, is_one = self._prompt_ids(prompts)
        options = Options(
            num_beams=num_beams,
            length_penalty=length_penalty,
            early_stopping=early_stopping,
            sample=sample,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            num_sequences=num_sequences,
            stop_ids=self._stop_ids() if stop_ids is None else stop_ids,
        )
        limit = self.backbone.config.max_length if self.backbone.learned_positions else None
        found = generate(self, ids, options, max_new_tokens, min_new_tokens, seed, batch_size, limit=limit)

        def answer(prompt, new, score):
            whole = np.concatenate([prompt, new])
            named = {"text": self.tokenizer.decode(whole)} if is_text else {"token_ids": whole}
            return {**named, "score": score} if scores else next(iter(named.values()))

        answers = [[answer(prompt, *one) for one in many] for prompt, many in zip(ids, found, strict=True)]
        answers = answers if num_sequences > 1 else [many[0] for many in answers]
        return answers[0] if is_one else answers

    def _prompt_ids(self, prompts):
        """Prompts as a list of int32 arrays; whether they were text; whether it was only one."""
        if isinstance(prompts, str) or (len(prompts) and isinstance(prompts[0], str)):
            texts = [prompts] if isinstance(prompts, str) else list(prompts)
            return self.require_tokenizer().encode(texts, add_special_tokens=False), True, isinstance(prompts, str)
        one = len(prompts) > 0 and np.ndim(prompts[0]) == 0
        return [np.asarray(row, "int32") for row in ([prompts] if one else prompts)], False, one

    def _stop_ids(self):
        stop = getattr(self.backbone.config, "eos_id", None)
        if stop is None and self.tokenizer is not None:
            stop = self.tokenizer.eos_id
        return () if stop is None else stop

    def start_cache(self, context, batch_size, length):
        """What decoding keeps; see `generation.decoding`."""
        return self.backbone.empty_cache(batch_size, length)

    def next_logits(self, inputs, cache):
        """(logits of the token after the last one, float (b, v); the next cache); see `generation.decoding`."""
        outputs = self.backbone(inputs, cache=cache)
        logits = self.causal_lm(outputs["sequence_output"][:, -1:], self.backbone.token_table)
        return logits[:, 0], outputs["cache"]

    # === Text ===

    def text_batches(self, x, y, sample_weight, batch_size, epochs, seed, shuffle):
        """Chunks of the texts, one document each; see `CausalLMBatches` for more control."""
        if y is not None:
            raise ValueError("The targets of causal language modelling are in the text. Received: y. Drop it.")
        with tempfile.TemporaryDirectory() as folder:
            corpus = Corpus.write(folder, x, self.require_tokenizer())
            length = min(getattr(self.backbone.config, "max_length", None) or 128, 128)
            once = CausalLMBatches(corpus, batch_size, length, seed=seed)
            if epochs == 1:
                return once
            return CausalLMBatches(corpus, batch_size, length, seed=seed, steps=len(once) * epochs)

    # === What this objective says of itself ===

    def check_batch(self, x, y=None, sample_weight=None):
        super().check_batch(x, y, sample_weight)
        size = self.backbone.config.vocabulary_size
        if y is not None and y.size and not (y.min() >= 0 and y.max() < size):
            wrong = y.max() if y.max() >= size else y.min()
            raise ValueError(f"Labels must be between 0 and {size - 1} (vocabulary_size). Received: {wrong}.")
