"""Signs that programs write in ASCII: the reports of benchmarks have "0.73 +- 0.02" for 0.73 ± 0.02."""

from docutils import nodes


def replace(app, doctree):
    for text in [*doctree.findall(nodes.Text)]:
        if " +- " in text and not isinstance(text.parent, (nodes.literal, nodes.literal_block)):
            text.parent.replace(text, nodes.Text(text.replace(" +- ", " ± ")))


def setup(app):
    app.connect("doctree-read", replace)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
