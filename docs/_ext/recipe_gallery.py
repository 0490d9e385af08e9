"""The directive `recipes`: all recipes by family, with the tokens that they read."""

import itertools
from pathlib import Path

from sphinx.util.docutils import SphinxDirective

from pipelines.recipes.command import gallery, shown

FAMILIES = Path(__file__).parents[1] / "families"


def recipes_tables(rows):
    """Returns a heading and a table in Markdown for each family, with a link to its page if there is one."""
    lines = []
    for family, group in itertools.groupby(rows, lambda row: row["name"].partition(".")[0]):
        heading = f"[{family}](families/{family}.md)" if (FAMILIES / f"{family}.md").is_file() else family
        lines += [f"## {heading}", "", "| recipe | updates | tokens | what it trains |", "|---|---|---|---|"]
        for row in group:
            lines.append(f"| `{row['name']}` | {row['updates']:,} | {shown(row['tokens'])} | {row['summary']} |")
        lines.append("")
    return "\n".join(lines)


class RecipesTable(SphinxDirective):
    def run(self):
        return self.parse_text_to_nodes(recipes_tables(gallery()))


def setup(app):
    app.add_directive("recipes", RecipesTable)
