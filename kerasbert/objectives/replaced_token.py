"""Replaced token detection: trains ELECTRA's generator and discriminator together."""

import contextlib
import json
from os import PathLike
from pathlib import Path
from typing import Any, Self

import keras
from keras import ops

from ..backend.distribution import gather_weights
from ..checkpoints.folder import RECORD, ModelFolder, find_folder, one_save
from ..checkpoints.saves import new_id, replaced_model, write_record
from ..checkpoints.tensor_files import WEIGHTS, TensorFiles, write_json
from ..data import ReplacedTokenBatches
from ..data.corpus.corpus import Corpus
from ..data.text.folders import folder_at
from ..data.tokenizers.tokenizer import Tokenizer
from ..layers.embeddings import scatter_positions
from ..models.backbone import Backbone
from .alternating_steps import AlternatingSteps
from .discriminator import (
    AUC,
    Discriminator,
    binary_cross_entropy,
    copied_or_predicted,
    copy_cross_entropy,
)
from .masked_lm import MaskedLM
from .objective import (
    WeightedMean,
    as_objective,
    check_labels,
    cross_entropy,
    predicted_correctly,
    slot_shape,
    slot_weights,
    token_weights,
)
from .shared_embeddings import copy_value, share_embeddings, with_embeddings

# {training objective of the discriminator: default weight of its mean loss}
OBJECTIVES = {"replaced_tokens": 50.0, "replaced_slots": 50.0, "replace_mlm": 1.0, "all_tokens_mlm": 1.0}


@keras.saving.register_keras_serializable("kerasbert")
class ReplacedTokenDetection(AlternatingSteps):
    """Trains a generator that replaces masked tokens by samples, and a discriminator that detects replaced tokens.

    Clark, Luong, Le, Manning 2020, arXiv 2003.10555, section 3. The generator is trained by masked language modeling.
    The discriminator is trained by a binary loss at all real tokens. A sampled token that equals the original token
    counts as original. No gradient flows through the sampling. The loss is the mean loss of the generator plus
    `discriminator_weight` times the mean loss of the discriminator.

    One optimizer trains both models in one step. `training.AlternatingOptimizers` train them in two steps per batch, as
    in DeBERTa-v3.

    Args:
        generator: a `MaskedLM`, or a backbone with a `masked_lm` head, or a folder with one of them.
        discriminator: a `Discriminator`, or a backbone with a `replaced_token` head, or a folder with one of them.
        discriminator_weight: weight of the discriminator's loss. Default: 50, or 1 if `objective` predicts tokens.
        embedding_sharing: how the models share embeddings. The given backbones are never changed. They are copied if
            necessary.
            - "shared": both models use and train the same embeddings (ELECTRA): those of the generator, if it is given
              as a `MaskedLM` or a folder and the discriminator as a backbone; otherwise, those of the discriminator.
            - "disentangled": the discriminator adds a difference to the embeddings of the generator. Its loss trains
              only the difference (DeBERTa-v3). If the discriminator is given as a backbone, the difference starts at
              zero. Otherwise, its embeddings keep their values.
            - "none": nothing is shared.
        objective: what the discriminator predicts. All but the first are ablations in the paper (section 3.4).
            - "replaced_tokens": which tokens were replaced.
            - "replaced_slots": the same, but only at the masked positions (ELECTRA 15%).
            - "replace_mlm": the original tokens at the masked positions.
            - "all_tokens_mlm": the original tokens at all positions, with a copy mechanism.
        temperature: temperature of the sampling.
        seed: seed of the sampling. Training and evaluation have separate random states.
        tokenizer: a `Tokenizer` for text inputs. Default: the discriminator's tokenizer, or else the generator's.

    Call:
        inputs: a batch with `masked_positions`.

    Returns:
        A dict of the outputs below. The last two depend on `objective`. The targets y are the original tokens at the
            masked positions, int32 (b, p).
            - `tokens` (b, p, v), the generator's logits.
            - `sampled`, int32 (b, p), the sampled token ids.
            - `replaced` (b, s), the logits of the probability that a token was replaced.
            - `originals` (b, p, v) or (b, s, v), the discriminator's logits of the original tokens.

    Raises:
        ValueError: if `objective` or `embedding_sharing` is unknown, `temperature` is not above 0, the vocabularies of
            the models differ, or one of them is no suitable objective, backbone or folder.

    Example:
        >>> from kerasbert.data import Corpus, ReplacedTokenBatches, Tokenizer
        >>> from kerasbert.models import Electra, ElectraConfig
        >>> from kerasbert.objectives import ReplacedTokenDetection
        >>> tokenizer = Tokenizer.from_preset("bert_mini_en")
        >>> corpus = Corpus.in_memory(["The cat sat on the mat.", "A dog ran home."] * 8, tokenizer)
        >>> sizes = dict(num_layers=1, num_heads=2, embedding_dim=16, feed_forward_dim=32)
        >>> small, large = (Electra(ElectraConfig(tokenizer.vocabulary_size, hidden_dim=m, **sizes)) for m in (8, 16))
        >>> model = ReplacedTokenDetection(generator=small, discriminator=large, tokenizer=tokenizer)
        >>> history = model.fit(ReplacedTokenBatches(corpus, batch_size=4, length=16, steps=2), verbose=0)
        >>> sorted(history.history)
        ['loss', 'mlm_accuracy', 'mlm_loss', 'replaced_rate', 'rtd_accuracy', 'rtd_auc', 'rtd_loss']
    """

    SAVES = ("discriminator_weight", "embedding_sharing", "objective", "temperature", "seed")

    example_call = 'model.discriminator.score_tokens("The cat sat on the mat.")'
    default_learning_rate = 5e-4

    def __init__(
        self,
        generator: MaskedLM | Backbone | str | PathLike,
        discriminator: Discriminator | Backbone | str | PathLike,
        discriminator_weight: float | None = None,
        embedding_sharing: str = "shared",
        objective: str = "replaced_tokens",
        temperature: float = 1.0,
        seed: int = 0,
        tokenizer: Tokenizer | None = None,
        **kwargs: Any,
    ):
        if objective not in OBJECTIVES:
            raise ValueError(f"`objective` must be one of {', '.join(OBJECTIVES)}. Received: {objective!r}.")
        if not temperature > 0:
            raise ValueError(f"`temperature` must be above 0. Received: {temperature}.")
        is_new, starts_new = isinstance(discriminator, Backbone), isinstance(generator, Backbone)
        discriminator_class, arguments = discriminator_kind(objective)
        generator, discriminator = (
            as_objective(generator, MaskedLM),
            as_objective(discriminator, discriminator_class, **arguments),
        )
        _check_pair(generator, discriminator, objective)
        options = dict(keep_tables=not is_new, from_generator=is_new and not starts_new)
        backbones = share_embeddings(generator.backbone, discriminator.backbone, embedding_sharing, **options)
        tokenizer = tokenizer or discriminator.tokenizer or generator.tokenizer
        super().__init__(backbones[1], tokenizer, **kwargs)
        self.generator, self.discriminator = map(_with_backbone, (generator, discriminator), backbones)
        self.discriminator_weight = OBJECTIVES[objective] if discriminator_weight is None else discriminator_weight
        self.embedding_sharing, self.objective, self.temperature = embedding_sharing, objective, temperature
        self.seed = seed
        self.sampling_seed = keras.random.SeedGenerator(seed, name="sampling_seed")
        self.evaluation_seed = keras.random.SeedGenerator(
            seed, name="evaluation_seed"
        )  # a separate random state, so that evaluation does not affect training
        self.mlm_loss = WeightedMean(name="mlm_loss")
        self.mlm_accuracy = WeightedMean(name="mlm_accuracy")
        self.rtd_loss = WeightedMean(name="rtd_loss")
        self.rtd_accuracy = WeightedMean(name="rtd_accuracy")
        self.replaced_rate = WeightedMean(name="replaced_rate")
        self.rtd_auc = None
        if objective in ("replaced_tokens", "replaced_slots"):
            self.rtd_auc = AUC(name="rtd_auc")
        self.build_now()

    def example_inputs(self):
        return {**super().example_inputs(), "masked_positions": ops.zeros((1, 1), "int32")}

    def generator_outputs(self, inputs, training):
        logits = self.generator(inputs, training=training)
        return {"tokens": logits, "sampled": self._sample(logits, training)}

    def discriminator_outputs(self, inputs, filled, training):
        corrupted = scatter_positions(inputs["token_ids"], filled["sampled"], inputs["masked_positions"])
        found = self.discriminator({**inputs, "token_ids": corrupted}, training=training)
        if isinstance(found, dict):
            return {"replaced": found["replaced"], "originals": found["tokens"]}
        return {"originals" if self.objective == "replace_mlm" else "replaced": found}

    def _sample(self, logits, training):
        """Samples one token for each masked position from the generator's distribution. Returns int32 (b, p)."""
        batch, slots, vocabulary = (-1 if size is None else size for size in ops.shape(logits))
        scores = ops.cast(ops.stop_gradient(logits), "float32") / self.temperature
        seed = self.sampling_seed if training else self.evaluation_seed
        sampled = keras.random.categorical(ops.reshape(scores, (-1, vocabulary)), 1, dtype="int32", seed=seed)
        return ops.reshape(sampled, (batch, slots))

    def generator_loss(self, x, y, y_pred, sample_weight):
        labels, _, weights = _targets(x, y, sample_weight)
        losses = cross_entropy(y_pred["tokens"], labels)
        right = predicted_correctly(y_pred["tokens"], labels)
        self.mlm_loss.update_state(losses, weights)
        self.mlm_accuracy.update_state(ops.cast(right, "float32"), weights)
        return self.mean_loss(x, losses, weights, "tokens")

    def discriminator_loss(self, x, y, y_pred, sample_weight):
        labels, given, weights = _targets(x, y, sample_weight)
        losses, right, weights = self._discriminator_losses(x, labels, y_pred, weights, given)
        self.rtd_loss.update_state(losses, weights)
        self.rtd_accuracy.update_state(ops.cast(right, "float32"), weights)
        counted = "tokens" if self.objective in ("replaced_slots", "replace_mlm") else "replaced"
        return self.discriminator_weight * self.mean_loss(x, losses, weights, counted)

    def _discriminator_losses(self, x, labels, y_pred, slots, given):
        """Returns (losses, hits, weights) of the discriminator, where hits are 1 for correct predictions, otherwise 0.

        The shapes are (b, s), or (b, p) for the objective "replace_mlm".

        Args:
            x, y_pred: the inputs, and the outputs of `call`.
            labels: int32 (b, p), the original tokens.
            slots: float32 (b, p), the weights of the generator's losses.
            given: a dict of the sample weights for `tokens`, and optionally for `replaced`.
        """
        token_ids, positions = x["token_ids"], x["masked_positions"]
        corrupted = scatter_positions(token_ids, y_pred["sampled"], positions)
        originals = scatter_positions(token_ids, labels, positions)
        replaced = corrupted != originals
        tokens = given["tokens"]
        row_weights = tokens if tokens is not None and len(tokens.shape) == 1 else None
        weights = token_weights(x, given.get("replaced", row_weights))
        self.replaced_rate.update_state(ops.cast(replaced, "float32"), weights)
        if self.objective == "replace_mlm":
            losses = cross_entropy(y_pred["originals"], labels)
            return losses, predicted_correctly(y_pred["originals"], labels), slots
        if self.objective == "all_tokens_mlm":
            losses = copy_cross_entropy(y_pred["originals"], y_pred["replaced"], corrupted, originals)
            outputs = {"tokens": y_pred["originals"], "replaced": y_pred["replaced"]}
            return losses, copied_or_predicted(outputs, corrupted) == originals, weights
        if self.objective == "replaced_slots":
            weights = weights * scatter_positions(ops.zeros_like(weights), ops.ones_like(slots), positions)
        self.rtd_auc.update_state(replaced, y_pred["replaced"], weights)
        return binary_cross_entropy(y_pred["replaced"], replaced), (y_pred["replaced"] > 0) == replaced, weights

    # === Text ===

    def text_batches(self, x, y, sample_weight, batch_size, epochs, seed, shuffle):
        """Returns batches for texts, each of which is one document; see `ReplacedTokenBatches`."""
        if y is not None:
            raise ValueError("The targets of replaced token detection are in the text. Received: y. Drop it.")
        corpus = Corpus.in_memory(x, self.require_tokenizer())
        length = min(self.backbone.config.max_length, 128)
        once = ReplacedTokenBatches(corpus, batch_size, length, seed=seed)
        if epochs == 1:
            return once
        return ReplacedTokenBatches(corpus, batch_size, length, seed=seed, steps=len(once) * epochs)

    # === Checks and configuration ===

    def target_shapes(self, x):
        return {} if x.get("masked_positions") is None else {"tokens": slot_shape(x)}

    def check_batch(self, x, y=None, sample_weight=None):
        super().check_batch(x, y, sample_weight)
        self.generator.backbone.check_inputs(x)
        if x.get("masked_positions") is None:
            raise ValueError(
                "The generator fills masked positions, so a batch needs `masked_positions`. Received: "
                f"{', '.join(sorted(x))}. Use `ReplacedTokenBatches`, or call `model.discriminator`."
            )
        check_labels(y["tokens"] if isinstance(y, dict) else y, self.backbone.config.vocabulary_size)

    @classmethod
    def from_preset(
        cls,
        path: str | PathLike,
        load_weights: bool = True,
        dtype: str | keras.DTypePolicy | None = None,
        **overrides: Any,
    ) -> Self:
        """Loads both models from a folder with `generator/` and `discriminator/`, or creates models of a named size.

        Args:
            path: a local folder, `"hf://org/name"`, or the name of a size, such as "electra_small". For a size, the
                generator has the size of the paper, and all weights are random.
            load_weights: whether to load the weights. False leaves them random.
            dtype: a Keras dtype policy. Default: the global one.
            **overrides: arguments of this class, and fields of both configs.

        Raises:
            FileNotFoundError: if there is no such folder or model.
            ValueError: as in `MaskedLM.from_preset`, or if `engine` is given.
        """
        if overrides.pop("engine", None) is not None:
            raise ValueError(
                f"`engine` runs a single model. Received: {path}, which has two. Use {path}/discriminator."
            )
        settings = {name: overrides.pop(name) for name in (*cls.SAVES, "tokenizer") if name in overrides}
        if Path(path).is_dir() or str(path).startswith("hf://"):
            if not isinstance(path, ModelFolder):
                path = ModelFolder(find_folder(path, overrides.pop("revision", None), overrides.pop("token", None)))
            saved = path.saved.get("arguments") or {}
            cls.check_saved(saved, path.path / RECORD)
            settings = {**saved, **settings}
            generator, discriminator = path.part("generator"), path.part("discriminator")
            checked = one_save(path, overrides.get("allow_mixed", False))
        else:
            generator, discriminator, checked = f"{path}_generator", path, contextlib.nullcontext()
        options: dict[str, Any] = dict(load_weights=load_weights, dtype=dtype, **overrides)
        discriminator_class, arguments = discriminator_kind(settings.get("objective", "replaced_tokens"))
        with checked:
            parts = (
                MaskedLM.from_preset(generator, **options),
                discriminator_class.from_preset(discriminator, **arguments, **options),
            )
        return cls(*parts if load_weights else (part.backbone for part in parts), **settings)

    def save_to_preset(self, path: str | PathLike, **options: Any) -> None:
        """Writes two model folders, `generator/` and `discriminator/`, into a folder.

        `kerasbert.load` loads both models from the folder. transformers, backbones and tasks load the discriminator
        from the same folder, which contains an index file that points to the discriminator's weights.

        Args:
            path: a folder, created if it does not exist.
            **options: see `Backbone.save_to_preset`.

        Raises:
            ValueError: if `max_shard_size` is no size.
        """
        halves = {"generator": self.generator, "discriminator": self.discriminator}
        if self.embedding_sharing == "disentangled":
            halves = {name: _with_backbone(half, with_embeddings(half.backbone)) for name, half in halves.items()}
        first, _ = (gather_weights(half.weights) for half in halves.values())
        if not first:
            return
        with replaced_model(folder_at(path)) as folder:
            for name, half in halves.items():
                half.save_to_preset(folder / name, tokenizer_of=self, **options)
            where = TensorFiles(folder / "discriminator").where.items()
            where = {name: f"discriminator/{file}" for name, file in where if not name.startswith("kerasbert.")}
            size = sum((folder / file).stat().st_size for file in set(where.values()))
            write_json(folder / f"{WEIGHTS}.index.json", {"metadata": {"total_size": size}, "weight_map": where})
            write_json(folder / "config.json", json.loads((folder / "discriminator" / "config.json").read_text()))
            self.save_tokenizer(folder)
            name = keras.saving.get_registered_name(type(self)).removeprefix("kerasbert>")
            write_record(folder, {"class": name, "arguments": self.arguments()}, new_id())


def _targets(x, y, sample_weight):
    """Returns (labels (b, p), a dict of the given sample weights, weights of the labels, float32 (b, p))."""
    labels = y["tokens"] if isinstance(y, dict) else y
    given = sample_weight if isinstance(sample_weight, dict) else {"tokens": sample_weight}
    return labels, given, slot_weights(x, labels, given["tokens"])


def discriminator_kind(objective):
    """Returns (class, arguments) of the discriminator for a value of `objective`."""
    if objective == "replace_mlm":
        return MaskedLM, {"sentence_pair": False}
    return Discriminator, {"masked_lm": objective == "all_tokens_mlm"}


def _with_backbone(objective, backbone):
    """Returns a copy of an objective, including its heads, with another backbone."""
    if objective.backbone is backbone:
        return objective
    moved = type(objective)(backbone, tokenizer=objective.tokenizer, **objective.arguments())
    for new, old in zip(_heads(moved), _heads(objective), strict=True):
        copy_value(old, new)
    return moved


def _heads(objective):
    """Returns the weights of an objective that are not in its backbone."""
    in_backbone = {id(variable) for variable in objective.backbone.weights}
    return [variable for variable in objective.weights if id(variable) not in in_backbone]


def _check_pair(generator, discriminator, objective):
    sizes = [half.backbone.config.vocabulary_size for half in (generator, discriminator)]
    if sizes[0] != sizes[1]:
        raise ValueError(
            "Generator and discriminator must have the same vocabulary. Received: vocabulary_size="
            f"{sizes[0]} and {sizes[1]}."
        )
    if generator.sentence_pair is not None:
        raise ValueError(
            "A generator predicts tokens only. Received: a MaskedLM with sentence_pair=True. Use sentence_pair=False."
        )
    discriminator_class, arguments = discriminator_kind(objective)
    if any(discriminator.arguments()[name] != value for name, value in arguments.items()):
        raise ValueError(
            f"objective={objective!r} needs "
            f"{discriminator_class.__name__}({', '.join(f'{k}={v}' for k, v in arguments.items())}). "
            f"Received one with {discriminator.arguments()}. Pass its backbone instead."
        )
