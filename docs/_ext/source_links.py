"""Links from the source code back to the API, for names that several pages describe.

`kerasbert.backend.connect` is `kerasbert.training.connect`, too. Sphinx's viewcode takes the module of one page and the
file of the other, which gives a link to nowhere.
"""


def consistent(app, env):
    """Moves each link of a source file to the page that describes the name in the module that the links use, if any."""
    described = env.get_domain("py").objects
    for entry in getattr(env, "_viewcode_modules", {}).values():
        if entry:
            _, _, pages, module = entry
            for name in [*pages]:
                if found := described.get(f"{module}.{name}"):
                    pages[name] = found.docname
                else:
                    del pages[name]
    return []


def setup(app):
    app.connect("env-updated", consistent)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
