"""The directive `recipes`: all recipes, with the tokens that they read."""

from sphinx.util.docutils import SphinxDirective

from pipelines.recipes.command import gallery, shown


def recipes_table(rows):
    """Returns the table in Markdown."""
    lines = ["| recipe | updates | tokens | what it trains |", "|---|---|---|---|"]
    for row in rows:
        lines.append(f"| `{row['name']}` | {row['updates']:,} | {shown(row['tokens'])} | {row['summary']} |")
    return "\n".join(lines)


class RecipesTable(SphinxDirective):
    def run(self):
        return self.parse_text_to_nodes(recipes_table(gallery()))


def setup(app):
    app.add_directive("recipes", RecipesTable)
