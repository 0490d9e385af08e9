"""Directives that fill the pages of families with what the package knows: figures, tables and links to the source.

    ```{family} Bert
    :show: diagram
    ```

`show` is one of diagram, facts, config, layers, sizes, checkpoints, recipes and objective. `recipes` names the modules
whose recipes are listed or, for `objective`, the recipes that corrupt the sentence. A `brief` picture of an objective
is one without the original text and the notes.
"""

import importlib
import inspect

import diagrams
import stacks
from docutils import nodes
from docutils.parsers.rst import directives
from family_tables import (
    backbone_of,
    checkpoints_table,
    config_table,
    layers_table,
    model_types,
    objective_picture,
    recipes_table,
    sizes_table,
)
from sphinx.util.docutils import SphinxDirective


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
        "brief": directives.flag,
    }

    def run(self):
        name, part = self.arguments[0], self.options["show"]
        if part == "diagram":
            title = self.options.get("title", f"The layers of {name}, from the inputs at the bottom to the outputs.")
            figure = f'<div class="family-figure">{diagrams.draw(stacks.DIAGRAMS[name], title)}</div>'
            return [nodes.raw("", figure, format="html")]
        if part == "objective":
            options = {
                key: self.options[key] for key in ("sentence", "translation", "seed", "pieces") if key in self.options
            }
            picture = objective_picture(self.options["recipes"].split(), brief="brief" in self.options, **options)
            return [nodes.raw("", picture, format="html")]
        if part == "facts":
            return self.facts(name)
        makers = {
            "config": lambda: config_table(name),
            "layers": lambda: layers_table(name),
            "sizes": lambda: sizes_table(name),
            "checkpoints": lambda: checkpoints_table(name),
            "recipes": lambda: recipes_table(self.options["recipes"].split()),
        }
        parsed = self.parse_text_to_nodes(makers[part]())
        for table in parsed:
            table["classes"].append(part)  # the style of the site knows the tables by it
        return parsed

    def facts(self, name):
        backbone = backbone_of(name)
        module = backbone.__module__
        path = module.replace(".", "/") + ".py"
        up = "../" * self.env.docname.count("/")
        source = nodes.paragraph("", "", nodes.strong(text="Implementation: "))
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
