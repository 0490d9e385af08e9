"""Base class of objectives that predict the next token at every position, and that can generate text."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops

from ..checkpoints.arguments import Saved
from ..checkpoints.tensor_files import write_json
from ..data.text.json_files import read_json
from ..data.tokenizers.tokenizer import Tokenizer
from ..generation.decoding import generate
from ..generation.search import Options
from ..generation.settings import (
    ARGUMENTS,
    GENERATION_IDS,
    check_settings,
    read_settings,
    settings_of_config,
    with_settings,
    written_settings,
)
from ..models.backbone import Backbone
from ..training.convert import read_texts
from .objective import Objective, Perplexity, WeightedMean, cross_entropy, predicted_correctly, slot_shape


class NextToken(Objective):
    """Base class of objectives whose targets y hold the next token at every position.

    A subclass implements `call(inputs)`, which returns logits (b, s, v), `default_weights(x, y)`, `decoder_prompts`,
    and the methods `start_cache` and `next_logits`, which `generation.decoding` calls.

    Args:
        backbone: a backbone with the head of the objective.
        tokenizer: a `Tokenizer`, which is required for text inputs.
        generation: {argument: value}, the settings that `generate` has unless the call gives others. A folder has them
            in `generation_config.json`, under the names of transformers. Besides arguments of `generate`, there are
            `max_length` and `min_length`, limits for the prompt and the new tokens together. An encoder-decoder counts
            its start token as the prompt.

    Raises:
        ValueError: if `generation` has an unknown setting.
    """

    SAVED_AS = {"generation": Saved(dict, -1_000_000)}

    hub_task = "text-generation"
    example_call = 'model.generate("The cat", max_new_tokens=20)'
    continues = True  # whether the generated text includes the prompt
    pads_as_tokenizer = False  # prompts have positions of their own

    def __init__(
        self,
        backbone: Backbone,
        tokenizer: Tokenizer | None = None,
        generation: dict[str, Any] | None = None,
        **kwargs: Any,
    ):
        super().__init__(backbone, tokenizer, **kwargs)
        self.generation = dict(generation or {})
        check_settings(self.generation)
        if np.atleast_1d(self.generation.get("stop_ids", [])).tolist() == self.default_stop_ids():
            self.generation.pop("stop_ids", None)
        for name in ("forced_bos_id", "forced_eos_id"):
            if hasattr(backbone.config, name):  # which has the value of the folder
                self.generation.pop(name.replace("_id", "_token_id"), None)
        self.accuracy = WeightedMean(name="accuracy")
        self.perplexity = Perplexity(name="perplexity")

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        if sample_weight is None or len(sample_weight.shape) < len(y.shape):
            weights = ops.cast(self.default_weights(x, y), "float32")
            if sample_weight is not None:
                weights = weights * ops.cast(sample_weight, "float32")[:, None]  # one weight per row
        else:
            weights = ops.cast(sample_weight, "float32")
        losses, hits = self.losses_and_hits(y_pred, y)
        self.perplexity.update_state(losses, weights)
        self.accuracy.update_state(hits, weights)
        return self.mean_loss(x, self.training_losses(losses, y_pred) if training else losses, weights)

    def losses_and_hits(self, y_pred, y):
        """Returns (cross-entropies, 1.0 where y is the most likely token and 0.0 elsewhere), float32 (b, s)."""
        return cross_entropy(y_pred, y), predicted_correctly(y_pred, y)

    def training_losses(self, losses, logits):
        """Returns the losses that training minimizes. Overridden by objectives with additional terms.

        Args:
            losses: float32 (b, s), the cross-entropies.
            logits: float (b, s, v).
        """
        return losses

    # === Generation ===

    texts_have_segments = False  # a prompt is one text

    def encode_prompts(self, texts):
        """Returns the token ids of text prompts, a list of int32 arrays."""
        return self.require_tokenizer().encode(texts, add_special_tokens=False)

    def decoder_prompts(self, ids):
        """Prepares decoding for a list `ids` of prompts.

        Returns: (list of the token ids with which the decoder starts, dict of further inputs with one row per prompt,
            or None if there are none).
        """
        return ids, None

    def default_stop_ids(self):
        """Returns a list of the token ids that end a text: the `eos_id` of the config, or else of the tokenizer."""
        stop = getattr(self.backbone.config, "eos_id", None)
        if stop is None and self.tokenizer is not None:
            stop = self.tokenizer.eos_id
        return [] if stop is None else np.atleast_1d(stop).tolist()

    @property
    def forced_ids(self) -> tuple[int | None, int | None]:
        """Ids of the first token of all generated texts, and of the last one of those with the maximum length."""
        config = self.backbone.config
        return getattr(config, "forced_bos_id", None), getattr(config, "forced_eos_id", None)

    def generate(
        self,
        prompts: str | Sequence[str] | np.ndarray | Sequence[Sequence[int]],
        max_new_tokens: int | None = None,
        min_new_tokens: int | None = None,
        num_beams: int | None = None,
        length_penalty: float | None = None,
        early_stopping: bool | str | None = None,
        sample: bool | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        repetition_penalty: float | None = None,
        no_repeat_ngram_size: int | None = None,
        num_sequences: int | None = None,
        stop_ids: int | Sequence[int] | None = None,
        first_token: int | str | None = None,
        seed: int = 0,
        batch_size: int = 32,
        scores: bool = False,
    ) -> Any:
        """Generates text from prompts. Decoding is greedy unless beam search or sampling is requested.

        Arguments that are None have the value in `generation`, the settings of the model, or else the default here.

        Args:
            prompts: a str or a list of str, or a sequence of token ids or a list of such sequences, which may have
                different lengths.
            max_new_tokens: maximum number of new tokens. Default: 64, or fewer if the position table has no more.
            min_new_tokens: minimum number of new tokens. Stop tokens are not generated before. Default: 0.
            num_beams: number of beams for beam search. Default: 1, no beam search.
            length_penalty: beam search maximizes log probability / length ** length_penalty. Default: 1.
            early_stopping: determines when beam search ends. True: as soon as `num_beams` sequences are finished.
                False: when no unfinished sequence has a better score at its current length than the finished ones.
                "never": when no unfinished sequence can reach a better score than the finished ones. Default: False.
            sample: whether to sample tokens instead of choosing the most likely one. Default: False.
            temperature: divisor of the logits before sampling. Default: 1.
            top_k: sample only from the k most likely tokens. Default: from all.
            top_p: sample only from the smallest set of tokens with at least this total probability. Default: from all.
            repetition_penalty: divisor of the positive logits of tokens that have occurred, and factor of the negative
                ones; for beam search, factor of the log probabilities. Default: 1, no penalty.
            no_repeat_ngram_size: n, if no n-gram may occur twice. Default: 0, no limit.
            num_sequences: number of results per prompt: samples, or the best beams. Default: 1.
            stop_ids: token ids that end a sequence, () for none. Default: the `eos_id` of the config or the tokenizer.
            first_token: id or name of the first token of every result, such as mBART-50's "de_DE" for German. Default:
                the `forced_bos_id` of the config, if it has one.
            seed: seed of the sampling. The same seed gives the same random numbers on every backend.
            batch_size: number of prompts that are decoded together.
            scores: whether to return the log probability of new tokens, for beams divided by length ** length_penalty.

        Returns: a list with one result per prompt, or a single result for a single prompt. A result is a str for text
            prompts, and otherwise an int32 array of token ids including the stop token. `CausalLM` and `PermutationLM`
            return the prompt and the new tokens, `Seq2SeqLM` only the new tokens. With `scores`, a result is a dict of
            "text" or "token_ids", and "score". With `num_sequences` above 1, it is a list, best first.

        Raises: ValueError if an option is out of range or does not fit others, a prompt is empty or too long, its ids
            are not in the vocabulary, or text needs a tokenizer.
        """
        given = {name: value for name, value in locals().items() if name in ARGUMENTS}
        return self._generated(prompts, given, first_token, seed, batch_size, scores)

    def _generated(self, prompts, given, first_token, seed, batch_size, scores):
        """Computes what `generate` returns. `given` has its other arguments, {name: value}."""
        ids, is_text, is_one = self._prompt_ids(prompts)
        starts, context = self.decoder_prompts(ids)
        settings = with_settings(given, self.generation, max(map(len, starts), default=0))
        most, least = settings.pop("max_new_tokens"), settings.pop("min_new_tokens")
        settings["stop_ids"] = self._stop_ids(given["stop_ids"], settings["stop_ids"])
        settings["first_id"], settings["last_id"] = self._first_id(first_token), self.forced_ids[1]
        options, limit = Options(**settings), self.backbone.position_limit
        found = generate(self, starts, options, most, least, seed, batch_size, context, limit)
        pairs = zip(ids, found, strict=True)
        answers = [[self._answer(prompt, *one, is_text, scores) for one in many] for prompt, many in pairs]
        answers = answers if options.num_sequences > 1 else [many[0] for many in answers]
        return answers[0] if is_one else answers

    def _answer(self, prompt, new, score, is_text, scores):
        """Returns the result of `generate` for the new tokens after a prompt."""
        whole = np.concatenate([prompt, new]) if self.continues else new
        named = {"text": self.tokenizer.decode(whole)} if is_text else {"token_ids": whole}
        return {**named, "score": score} if scores else next(iter(named.values()))

    def _prompt_ids(self, prompts):
        """Returns (list with an int32 array per prompt, whether prompts are text, whether there is a single prompt)."""
        prompts = read_texts(prompts, "generate", "a text or ids")
        if isinstance(prompts, str) or (len(prompts) and isinstance(prompts[0], str)):
            texts = [prompts] if isinstance(prompts, str) else list(prompts)
            return self.encode_prompts(texts), True, isinstance(prompts, str)
        one = len(prompts) > 0 and np.ndim(prompts[0]) == 0
        rows = [np.asarray(row) for row in ([prompts] if one else prompts)]
        for row in rows:
            if row.ndim != 1 or (row.size and row.dtype.kind not in "iu"):
                raise ValueError(
                    "A prompt must be a str, or one sequence of integer ids. Received: an array of "
                    f"{row.dtype}{list(row.shape)}."
                )
        return [row.astype("int32") for row in rows], False, one

    def _stop_ids(self, given, settings):
        """Returns the stop ids for those that `generate` is given, which are checked, and those of the settings."""
        size = self.backbone.config.vocabulary_size
        wrong = [i for i in np.atleast_1d(np.asarray(() if given is None else given, "int64")) if not 0 <= i < size]
        if wrong:
            raise ValueError(f"`stop_ids` must be between 0 and {size - 1}, or () for none. Received: {wrong[0]}.")
        return self.default_stop_ids() if settings is None else settings

    def _first_id(self, first_token):
        """Returns the id of the forced first token, or None."""
        if first_token is None:
            return self.forced_ids[0]
        size, is_name = self.backbone.config.vocabulary_size, isinstance(first_token, str)
        first = self.require_tokenizer().backend.token_to_id(first_token) if is_name else first_token
        if not isinstance(first, (int, np.integer)) or not 0 <= first < size:
            raise ValueError(
                f"`first_token` must be a token of the vocabulary, or an id between 0 and {size - 1}. Received: "
                f"{first_token!r}."
            )
        return first

    # === Checks and configuration ===

    def target_shapes(self, x):
        return {"tokens": slot_shape(x)}

    def check_batch(self, x, y=None, sample_weight=None):
        super().check_batch(x, y, sample_weight)
        size = self.backbone.config.vocabulary_size
        if y is not None and y.size and not (y.min() >= 0 and y.max() < size):
            wrong = y.max() if y.max() >= size else y.min()
            raise ValueError(f"Labels must be between 0 and {size - 1} (vocabulary_size). Received: {wrong}.")

    def arguments(self):
        return {**super().arguments(), **({"generation": self.generation} if self.generation else {})}

    @classmethod
    def arguments_from_generation(cls, stored, path):
        return {"generation": read_settings(stored, path)}

    @classmethod
    def arguments_from_config(cls, stored, settings):
        settings = super().arguments_from_config(stored, settings)
        return {"generation": settings_of_config(stored), **settings}

    def write_extras(self, folder):
        """Writes `generation_config.json`, if there are settings, with the ids that transformers then reads there."""
        super().write_extras(folder)
        if self.generation:
            stored = read_json(folder / "config.json")
            ids = {name: stored[name] for name in GENERATION_IDS if stored.get(name) is not None}
            write_json(folder / "generation_config.json", ids | written_settings(self.generation))
