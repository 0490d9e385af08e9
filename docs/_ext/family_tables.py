"""What the package knows about its families, as the Markdown tables and the HTML of their pages."""

import ast
import dataclasses
import importlib
import inspect
import io
import tokenize
from pathlib import Path

import parameters
from summaries import first_sentence

RECIPE_COLUMNS = ("recipe", "what it is", "rows × tokens", "updates")
# Fields that have the same meaning in every config. The comment of a field in its class comes first.
MEANINGS = {
    "vocabulary_size": "number of tokens",
    "num_layers": "number of blocks",
    "num_heads": "attention heads of each block",
    "num_segments": "number of segment embeddings",
    "num_languages": "number of language embeddings",
    "num_highways": "highway layers after the convolutions",
    "hidden_dim": "width of the hidden states",
    "head_dim": "width of an attention head",
    "embedding_dim": "width of the embeddings",
    "character_dim": "width of the character embeddings",
    "feed_forward_dim": "inner width of the feed-forward network",
    "max_length": "number of position embeddings",
    "filters": "(width, number) of the convolutions over characters",
    "activation": "of the feed-forward network",
    "pooler_activation": "of the pooler",
    "head_activation": "of the heads",
    "convolution_activation": "of the convolution",
    "convolution_groups": "groups of channels that are convolved separately",
    "relative_attention": "whether scores depend on relative positions",
    "local_rope_theta": "base of the rotation periods in layers with local attention",
    "attention_bias": "whether the dense layers of attention have a bias",
    "feed_forward_bias": "whether the dense layers of the feed-forward network have a bias",
    "norm_bias": "whether layer normalization has a bias",
    "layer_norm_epsilon": "added to the variance in layer normalization",
    "dropout": "after each sublayer",
    "embedding_dropout": "of the sum of the embeddings",
    "attention_dropout": "of the attention probabilities",
    "attention_output_dropout": "after each attention layer",
    "feed_forward_dropout": "after each feed-forward network",
    "classifier_dropout": "before fine-tuning heads",
    "initializer_range": "standard deviation of initial weights",
    "initializer_factor": "scales the standard deviations of initial weights",
    "pad_id": "id of the padding token",
    "bos_id": "id of the token that begins a text",
    "eos_id": "id of the token that ends a text",
    "cls_id": "id of the token that begins a row",
    "sep_id": "id of the token that ends a segment",
    "decoder_start_id": "id of the first token that the decoder reads",
    "model_type": "`model_type` of `config.json`",
}


def backbone_of(name):
    return getattr(importlib.import_module("kerasbert.models"), name)


def model_types(backbone):
    from kerasbert.models import FAMILIES

    return [name for name, cls in FAMILIES.items() if cls is backbone]


def field_comments(config):
    """{field: the comment at the end of its line in the source}, for the fields that the config class declares."""
    comments = {}
    for cls in reversed([cls for cls in config.__mro__ if cls.__module__.startswith("kerasbert.models")]):
        source = inspect.getsource(cls)
        on_line = {
            token.start[0]: token.string.lstrip("# ")
            for token in tokenize.generate_tokens(io.StringIO(source).readline)
            if token.type == tokenize.COMMENT
        }
        for node in ast.parse(source).body[0].body:
            if isinstance(node, ast.AnnAssign):
                comments[node.target.id] = on_line.get(node.lineno, "")
    return comments


def markdown_table(header, rows):
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def config_table(name):
    """Every field of the config with its default and its meaning."""
    config = backbone_of(name).family.config
    comments, fields = field_comments(config), {field.name for field in dataclasses.fields(config)}
    rows = [
        (f"`{field}`", f"`{_text(getattr(config(), field))}`", comment or MEANINGS[field])
        for field, comment in comments.items()
        if field in fields
    ]
    return markdown_table(("field", "default", "meaning"), rows)


def _text(value):
    return f"{value:_}" if type(value) is int and abs(value) >= 1_000 else repr(value)


def layers_of(backbone):
    """The layers that the files of a family define or import, in the order of their definition: [(module, class)]."""
    import keras

    from kerasbert.layers import Composite, Layer
    from kerasbert.models import Backbone

    folder = backbone.__module__.rpartition(".")[0]
    names = [backbone.__module__]
    if folder != "kerasbert.models":  # a family with a folder
        path = Path(inspect.getfile(importlib.import_module(folder))).parent
        names = [f"{folder}.{file.stem}" for file in sorted(path.glob("[!_]*.py"))]
    found = {}
    for name in names:
        for value in vars(importlib.import_module(name)).values():
            is_layer = inspect.isclass(value) and issubclass(value, keras.layers.Layer)
            if is_layer and not issubclass(value, Backbone) and value not in (Composite, Layer, keras.layers.Layer):
                if value.__module__.startswith("kerasbert."):
                    found[value.__name__] = value
    return sorted(found.values(), key=lambda value: (value.__module__ not in names, value.__name__))


def layers_table(name):
    """The layers of a family, its own first, with the first sentence of their docstrings."""
    public = importlib.import_module("kerasbert.layers").__all__
    lines = ["| layer | defined in | |", "|---|---|---|"]
    for value in layers_of(backbone_of(name)):
        title = value.__name__
        shown = f"{{py:obj}}`{title} <kerasbert.layers.{title}>`" if title in public else f"`{title}`"
        lines.append(f"| {shown} | `{value.__module__.replace('.', '/')}.py` | {first_sentence(value)} |")
    return "\n".join(lines) + "\n"


def sizes_table(name):
    """The sizes of the papers: depth, width, heads, feed-forward width, vocabulary, parameters."""
    backbone = backbone_of(name)
    counts = parameters.known()
    shown = {
        "num_layers": "layers",
        "hidden_dim": "width",
        "num_heads": "heads",
        "feed_forward_dim": "feed-forward",
        "vocabulary_size": "vocabulary",
    }
    shown = {field: label for field, label in shown.items() if hasattr(backbone.family.config(), field)}
    rows = []
    for size, changes in backbone.family.sizes.items():
        config = backbone.family.config(**changes)
        key = parameters.key_of(backbone, size)
        total = counts[key] if key in counts else parameters.count(backbone, size)
        rows.append((f"`{size}`", f"{total:,}", *(_number(getattr(config, field)) for field in shown)))
    return markdown_table(("size", "parameters", *shown.values()), rows)


def _number(value):
    return "–" if value is None else f"{value:,}"


def checkpoints_table(name):
    """The classes of transformers whose folders are read and written, by model type."""
    import kerasbert.objectives
    import kerasbert.tasks

    backbone = backbone_of(name)
    layout = backbone.family.huggingface
    known = {"Backbone", *kerasbert.objectives.__all__, *kerasbert.tasks.__all__}
    rows = []
    for model_type in model_types(backbone):
        for ours, theirs in layout.of_type("classes", model_type).items():
            if ours.partition(" with ")[0] in known:
                shown = name if ours == "Backbone" else ours
                rows.append((f"`{model_type}`", f"`{shown}`", f"`{theirs}`"))
    return markdown_table(("`model_type`", "kerasbert", "architecture in the folder"), rows)


def recipes_table(modules):
    """The recipes of `pipelines/recipes`: what they are, the size of a batch, the number of updates."""
    rows = []
    for module in modules:
        found = importlib.import_module(f"pipelines.recipes.{module}")
        for name, function in vars(found).items():
            if name.startswith("_") or not inspect.isfunction(function) or function.__module__ != found.__name__:
                continue
            recipe = function()
            summary = inspect.getdoc(function).split("\n\n")[0].replace("\n", " ")
            sizes = dict.fromkeys(
                f"{phase.batch_size:,} × {phase.length:,}" for phase in (recipe.phases[0], recipe.phases[-1])
            )
            rows.append((f"`{recipe.name}`", summary, ", ".join(sizes), f"{recipe.steps:,}"))
    return markdown_table(RECIPE_COLUMNS, rows)


# One sentence for all families, so that their pages can be compared.
SENTENCE = "The old bridge was closed after the storm damaged two of its towers."


def objective_picture(recipes, sentence=SENTENCE, brief=False, **options):
    """HTML of the rows that runs of the recipes read, and of what they predict.

    Args:
        recipes: names of recipes.
        sentence: the text.
        brief: whether the original text and the notes are left out.
        **options: of `pipelines.show.corruption.Example`.
    """
    from pipelines.recipes.recipe import find_recipe
    from pipelines.show.corruption import Example, corrupted
    from pipelines.show.rows import rows_as_html

    pictures = []
    for name in recipes:
        pictures += corrupted(find_recipe(name), Example(sentence, **options))
    if brief:
        pictures = [
            dataclasses.replace(rows, lines=tuple(line for line in rows.lines if line.label != "text"), notes=())
            for rows in pictures
        ]
    return f'<div class="objective">{rows_as_html(pictures).replace("h2>", "h4>")}</div>'
