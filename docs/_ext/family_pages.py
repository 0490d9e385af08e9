"""Directives that fill the pages of families with what the package knows: figures, tables and links to the source.

    ```{family} Bert
    :show: diagram
    ```

`show` is one of diagram, facts, config, sizes, checkpoints, recipes and objective. `recipes` names the modules whose
recipes are listed or, for `objective`, the recipes that corrupt the sentence.
"""

import ast
import importlib
import inspect
import io
import tokenize

import diagrams
import parameters
import stacks
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

RECIPE_COLUMNS = ("recipe", "what it is", "rows × tokens", "updates")


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
    comments = field_comments(config)
    values = {field: getattr(config(), field) for field in comments}
    rows = [(f"`{field}`", f"`{_text(value)}`", comments[field]) for field, value in values.items()]
    return markdown_table(("field", "default", "meaning"), rows)


def _text(value):
    return f"{value:_}" if type(value) is int and abs(value) >= 1_000 else repr(value)


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
            rows.append(
                (f"`{recipe.name}`", summary, f"{recipe.batch_size:,} × {recipe.length:,}", f"{recipe.steps:,}")
            )
    return markdown_table(RECIPE_COLUMNS, rows)


# One sentence for all families, so that their pages can be compared.
SENTENCE = "The old bridge was closed after the storm damaged two of its towers."


def objective_picture(recipes, sentence=SENTENCE, **options):
    """HTML of the rows that runs of the recipes read, and of what they predict.

    Args:
        recipes: names of recipes.
        sentence: the text.
        **options: of `pipelines.pictures.corruption.Example`.
    """
    from pipelines.pictures.corruption import Example, corrupted
    from pipelines.pictures.rows import rows_as_html
    from pipelines.recipes.recipe import find_recipe

    pictures = []
    for name in recipes:
        pictures += corrupted(find_recipe(name), Example(sentence, **options))
    return f'<div class="objective">{rows_as_html(pictures).replace("h2>", "h4>")}</div>'


class FamilyPart(SphinxDirective):
    """One figure or table of a family's page."""

    required_arguments = 1
    option_spec = {
        "show": directives.unchanged_required,
        "recipes": directives.unchanged,
        "title": directives.unchanged,
        "sentence": directives.unchanged,
        "translation": directives.unchanged,
        "seed": directives.nonnegative_int,
        "pieces": directives.nonnegative_int,
    }

    def run(self):
        name, part = self.arguments[0], self.options["show"]
        if part == "diagram":
            title = self.options.get("title", f"The layers of {name}, from the inputs at the bottom to the outputs.")
            return [nodes.raw("", diagrams.draw(stacks.DIAGRAMS[name], title), format="html")]
        if part == "objective":
            options = {
                key: self.options[key] for key in ("sentence", "translation", "seed", "pieces") if key in self.options
            }
            return [nodes.raw("", objective_picture(self.options["recipes"].split(), **options), format="html")]
        if part == "facts":
            return self.facts(name)
        makers = {
            "config": lambda: config_table(name),
            "sizes": lambda: sizes_table(name),
            "checkpoints": lambda: checkpoints_table(name),
            "recipes": lambda: recipes_table(self.options["recipes"].split()),
        }
        return self.parse_text_to_nodes(makers[part]())

    def facts(self, name):
        backbone = backbone_of(name)
        module = backbone.__module__
        path = module.replace(".", "/") + ".py"
        up = "../" * self.env.docname.count("/")
        source = nodes.paragraph("", "", nodes.strong(text="Our file: "))
        link = nodes.reference("", "", nodes.literal(text=path), refuri=f"{up}_modules/{module.replace('.', '/')}.html")
        lines = len(inspect.getsource(importlib.import_module(module)).splitlines())
        types = ", ".join(f"`{t}`" for t in model_types(backbone))
        heads = ", ".join(f"`{head}`" for head in backbone.family.heads)
        source += [
            link,
            nodes.Text(f", {lines} lines, with the classes "),
            nodes.literal(text=name),
            nodes.Text(" and "),
        ]
        source += [nodes.literal(text=backbone.family.config.__name__), nodes.Text(".")]
        rest = self.parse_text_to_nodes(f"**Model types:** {types}. **Heads:** {heads}.")
        return [source, *rest]


def setup(app):
    app.add_directive("family", FamilyPart)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
