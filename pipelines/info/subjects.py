"""The things that `info` describes: model folders, sizes and recipes, each with a function that creates the model."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import kerasbert
import kerasbert.objectives
import kerasbert.tasks
from kerasbert.checkpoints.folder import SHIPPED, ModelFolder, find_folder, shipped_folder
from kerasbert.command_line import did_you_mean
from kerasbert.core.family import find_size, size_names
from kerasbert.data import Tokenizer
from kerasbert.data.noise.span_corruption import span_corruption_lengths
from kerasbert.data.text.json_files import closest
from kerasbert.models import Backbone
from kerasbert.objectives import MaskedLM

from ..recipes.data import DenoisingData
from ..recipes.recipe import Recipe, all_recipes, find_recipe, is_file
from ..runs.building import make_model
from .costs import MASK_RATE, Rows

# {kind of head: pretraining objective}. The first kind that a family has determines its objective.
OBJECTIVES = {
    "masked_lm": "MaskedLM",
    "seq2seq_lm": "Seq2SeqLM",
    "permutation_lm": "PermutationLM",
    "causal_lm": "CausalLM",
    "bidirectional_lm": "BidirectionalLM",
    "skip_gram": "SkipGram",
}
LENGTH, COUNT = 512, 32  # the default shape of a batch


@dataclasses.dataclass(frozen=True)
class Subject:
    """A model that `info` describes.

    Args:
        name: the name that the user gave.
        kind: "folder", "size" or "recipe".
        make: function from a Keras dtype policy to the model. Call it in a trace.
        tokenizer: the tokenizer of a folder, if it has one.
        recipe: the recipe, if the subject is one.
        folder: the folder, if the subject is one.
    """

    name: str
    kind: str
    make: Callable
    tokenizer: Tokenizer | None = None
    recipe: Recipe | None = None
    folder: Path | None = None

    def rows(self, count: int | None, length: int | None, limit: int | None) -> Rows:
        """Returns the shape of a batch: given by the user, or else by the recipe, or else the default."""
        if self.recipe is None:
            return Rows(count or COUNT, length or min(LENGTH, limit or LENGTH))
        return phases(self.recipe)[0][0] if not count and not length else rows_of(self.recipe, count, length)


def find_subject(name: str, model_class: str | None = None, settings: tuple[str, ...] = ()) -> Subject:
    """Finds the model folder, size or recipe with a name.

    Args:
        name: a folder, the name of a model that comes with kerasbert, hf://org/name, a size or a recipe, also one in a
            file, as in `find_recipe`. The first of these that has the name is used.
        model_class: the class of a model, for sizes; see `info`.
        settings: `name=value` overrides of a recipe.
    """
    is_folder = name.startswith("hf://") or Path(name).is_dir() or shipped_folder(name) is not None
    is_size = not is_folder and find_size(name) is not None
    if model_class and not is_size:
        raise ValueError(f"`model_class` is for sizes. Received: {name!r} with model_class={model_class!r}.")
    if settings and (is_folder or is_size):
        raise ValueError(f"`set` is for recipes. Received: {name!r} with set={' '.join(settings)}.")
    if is_folder or is_size:
        return of_folder(name) if is_folder else of_size(name, model_class)
    known = [*SHIPPED, *size_names(), *all_recipes()]
    if not is_file(name) and name not in known and name not in (key.replace(".", "_") for key in known):
        raise ValueError(
            "`kerasbert info` describes the folder of a model or a corpus, a shipped model, hf://org/name, a size such "
            f"as bert_base, or a recipe such as bert.base or recipes.py:mine. Received: {name!r}."
            f"{did_you_mean(name, known)}"
        )
    recipe = find_recipe(name).with_settings(list(settings))
    return Subject(name, "recipe", lambda dtype: recipe_model(dataclasses.replace(recipe, dtype=dtype)), recipe=recipe)


def of_folder(name: str) -> Subject:
    """Returns the model in a folder. It is loaded once, because some config fields are inferred from the weights."""
    folder = find_folder(name)
    loaded = kerasbert.load(folder)
    tokenizer = getattr(loaded, "tokenizer", None)
    tokenizer = ModelFolder(folder).tokenizer() if tokenizer is None else tokenizer
    fields = {} if getattr(loaded, "PARTS", ()) else vars(getattr(loaded, "backbone", loaded).config)

    def make(dtype):
        return kerasbert.load(folder, load_weights=False, dtype=dtype, **fields)

    return Subject(name, "folder", make, tokenizer, folder=Path(folder))


def of_size(name: str, model_class: str | None) -> Subject:
    """Returns a size of a paper, with random weights."""
    family = find_size(name)
    known = {**vars(kerasbert.objectives), **vars(kerasbert.tasks), "Backbone": Backbone}
    if model_class is None:
        model_class = next((cls for head, cls in OBJECTIVES.items() if head in family.family.heads), "Backbone")
    cls = known.get(model_class)
    if not (isinstance(cls, type) and hasattr(cls, "from_preset")):
        names = sorted(key for key, value in known.items() if isinstance(value, type) and hasattr(value, "from_preset"))
        raise ValueError(
            f"`model_class` must be one of {closest(model_class, names)}. Received: {model_class!r}."
            f"{did_you_mean(model_class, names)}"
        )
    return Subject(name, "size", lambda dtype: cls.from_preset(name, load_weights=False, dtype=dtype))


# === Recipes ===


def recipe_model(recipe: Recipe):
    """Creates the model of a recipe with the vocabulary size of the paper, because there is no tokenizer."""
    ids = dict.fromkeys(("pad_id", "bos_id", "eos_id", "cls_id", "sep_id"))
    vocabulary, teacher = recipe.config().vocabulary_size, None
    if recipe.teacher:
        teacher = _teacher_of(recipe)
        vocabulary = teacher.backbone.config.vocabulary_size
    tokenizer = SimpleNamespace(vocabulary_size=vocabulary, info=ids, padding_side="right")
    corpus = SimpleNamespace(tokenizer=lambda: tokenizer)
    model = dataclasses.replace(recipe.model, start=None)
    return make_model(dataclasses.replace(recipe, model=model, init_from=""), corpus, teacher)


def _teacher_of(recipe: Recipe):
    if recipe.teacher in all_recipes():
        return recipe_model(dataclasses.replace(find_recipe(recipe.teacher), dtype=recipe.dtype))
    try:
        return MaskedLM.from_preset(recipe.teacher, load_weights=False, dtype=recipe.policy)
    except OSError as error:
        raise OSError(
            f"The teacher of {recipe.name} must be a recipe, or a folder that can be read. Received: "
            f"{recipe.teacher}: {str(error).partition(chr(10))[0]} Use --set teacher=FOLDER, or teacher=bert.base."
        ) from None


def phases(recipe: Recipe) -> list[tuple[Rows, int]]:
    """Returns (shape of the batches, number of updates) for each part of a run."""
    return [(rows_of(recipe, phase.batch_size, phase.length), phase.steps) for phase in recipe.phases]


def rows_of(recipe: Recipe, count: int | None = None, length: int | None = None) -> Rows:
    """Returns the shape of a recipe's batches. If target lengths depend on the text, the usual length is used."""
    count, length = count or recipe.phases[0].batch_size, length or recipe.phases[0].length
    noise = getattr(getattr(recipe.data, "text", recipe.data), "noise", None)
    rate = getattr(noise, "rate", MASK_RATE)
    slots = getattr(noise, "max_predictions", None) or max(1, round(rate * length))
    return Rows(count, length, slots, target_length(recipe, length))


def target_length(recipe: Recipe, length: int) -> int | None:
    """Returns the number of tokens in targets of an encoder-decoder, or None if it is the same as in sources."""
    data = getattr(recipe.data, "text", recipe.data)
    if not isinstance(data, DenoisingData) or data.layout.kind != "encoder_decoder":
        return None
    if data.layout.target_length or data.noise.objective != "random_spans":
        return data.layout.target_length
    return span_corruption_lengths(length, data.noise.rate, data.noise.mean_span)[1]
