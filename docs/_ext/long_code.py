"""Long code in the cells of a table may wrap between words, so that the table fits a page: site.css has the style."""

LONGEST = 36  # letters of code that stay on one line


def mark(app, doctree):
    for cell in doctree.findall(lambda node: node.tagname == "entry"):
        for code in cell.findall(lambda node: node.tagname == "literal"):
            if len(code.astext()) > LONGEST:
                code["classes"].append("long")


def setup(app):
    app.connect("doctree-read", mark)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
