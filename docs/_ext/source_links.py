"""Links from the source code back to the API, for names that several pages describe.

`kerasbert.backend.connect` is `kerasbert.training.connect`, too. Sphinx's viewcode takes the module of one page and the
file of the other, which gives a link to nowhere.
"""


def consistent(app, env):
    """Moves each link of a source file to the page that describes the name in the module that the links use."""
    described = env.get_domain("py").objects
    files = getattr(env, "_viewcode_modules", {})
    for file, entry in files.items():
        if not entry:
            continue
        code, tags, pages, module = entry
        if any(f"{module}.{name}" not in described for name in pages):
            modules = {
                full.removesuffix(f".{name}") for name in pages for full in described if full.endswith(f".{name}")
            }
            module = max(
                sorted(modules), key=lambda one: sum(f"{one}.{name}" in described for name in pages), default=module
            )
            files[file] = code, tags, pages, module
        for name in pages:
            if found := described.get(f"{module}.{name}"):
                pages[name] = found.docname
    return []


def setup(app):
    app.connect("env-updated", consistent)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
