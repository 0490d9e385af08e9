"""Links from the source code back to the API, for names that several pages describe.

`kerasbert.backend.connect` is `kerasbert.training.connect`, too. Sphinx's viewcode takes the module of one page and the
file of the other, which gives a link to nowhere. If names of one file are described in several modules, their links are
mended one by one.
"""

import re


def consistent(app, env):
    """Moves each link of a source file to the page that describes the name in the module that the links use."""
    described = env.get_domain("py").objects
    for entry in getattr(env, "_viewcode_modules", {}).values():
        if entry:
            _, _, pages, module = entry
            for name in pages:
                if found := described.get(f"{module}.{name}"):
                    pages[name] = found.docname
    return []


def mend(app, name, template, context, doctree):
    """Replaces names that no page describes by those under which the page of the link describes them."""
    if not name.startswith("_modules/"):
        return
    described = app.env.get_domain("py").objects

    def mended(link):
        page, full = link[1], link[2]
        if full in described:
            return link[0]
        last = "." + full.rpartition(".")[2]
        others = [one for one, entry in described.items() if one.endswith(last) and entry.docname == page]
        return f"{page}.html#{others[0]}" if len(others) == 1 else link[0]

    context["body"] = re.sub(r"(api/[\w/]+)\.html#(kerasbert\.[\w.]+)", mended, context.get("body", ""))


def setup(app):
    app.connect("env-updated", consistent)
    app.connect("html-page-context", mend)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
