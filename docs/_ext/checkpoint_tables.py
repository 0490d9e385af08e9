"""The directive `checkpoints`: the table of published checkpoints, and when the other libraries were asked."""

from checkpoint_rows import checkpoints_table, read_content
from sphinx.util.docutils import SphinxDirective


class CheckpointsTable(SphinxDirective):
    def run(self):
        content = read_content()
        asked = f"\n\nThe other libraries were asked on {content['date']}."
        parsed = self.parse_text_to_nodes(checkpoints_table(content) + asked)
        for table in parsed[:1]:
            table["classes"].append("checkpoints")  # the style of the site knows the table by it
        return parsed


def setup(app):
    app.add_directive("checkpoints", CheckpointsTable)
