"""What the site has beside its pages: descriptions, the card of shared links, `sitemap.xml` and `llms.txt`."""

import html
import re
from pathlib import Path
from urllib.parse import urljoin

from docutils import nodes

CARD = "_static/card.png"
LONGEST = 160  # letters of a description that search engines show


def description_of(doctree):
    """The first paragraph of a page, up to the sentence that still fits."""
    for paragraph in doctree.findall(nodes.paragraph):
        parents = []
        node = paragraph.parent
        while node is not None:
            parents.append(node)
            node = node.parent
        if all(isinstance(parent, (nodes.section, nodes.document)) for parent in parents):
            return shortened(" ".join(paragraph.astext().split()))
    return ""


def shortened(text):
    """As many sentences of a text as fit, or its first words."""
    if len(text) <= LONGEST:
        return text
    stop = max((match.end() for match in re.finditer(r"[.:](?= [A-Z])", text[:LONGEST])), default=0)
    return text[:stop].rstrip(":") if stop > LONGEST // 3 else text[: text.rindex(" ", 0, LONGEST)] + " ..."


def describe(app, doctree):
    app.env.metadata[app.env.docname]["description"] = description_of(doctree)


def add_tags(app, name, template, context, doctree):
    """Adds the tags of search engines and of programs that show links."""
    context.setdefault("metatags", "")
    if name == "404" and app.config.html_baseurl:  # it is shown in place of pages of any folder
        context["metatags"] += f'<base href="{html.escape(app.config.html_baseurl)}">'
    if doctree is None:
        return
    description, title = app.env.metadata[name]["description"], app.env.titles[name].astext()
    tags = {"og:title": title, "og:type": "website", "og:site_name": app.config.project}
    if description:
        context["metatags"] += f'<meta name="description" content="{html.escape(description)}">'
        tags["og:description"] = description
    if site := app.config.html_baseurl:  # addresses of a card must be whole
        tags |= {"og:url": urljoin(site, f"{name}.html"), "og:image": urljoin(site, CARD)}
        context["metatags"] += '<meta name="twitter:card" content="summary_large_image">'
    context["metatags"] += "".join(
        f'<meta property="{key}" content="{html.escape(value)}">' for key, value in tags.items()
    )


def in_order(env, name=None):
    """The pages in the order of the sidebar, each once."""
    name, found = name or env.config.root_doc, []
    for page in (name, *(below for child in env.toctree_includes.get(name, ()) for below in in_order(env, child))):
        if page not in found:
            found.append(page)
    return found


def write_lists(app, error):
    """Writes `llms.txt`, a list of the pages for language models, and the sitemap if the site has an address."""
    if error is not None or app.builder.format != "html":
        return
    env, site, folder = app.env, app.config.html_baseurl, Path(app.outdir)
    about = env.metadata[app.config.root_doc].get("description") or app.config.project
    lines = [f"# {app.config.project}", "", f"> {about}", "", "## Pages", ""]
    for name in in_order(env):
        description = env.metadata[name].get("description", "")
        lines.append(f"- [{env.titles[name].astext()}]({urljoin(site, f'{name}.html')}): {description}".rstrip(": "))
    (folder / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    if site:
        addresses = "".join(
            f"<url><loc>{html.escape(urljoin(site, f'{name}.html'))}</loc></url>\n" for name in in_order(env)
        )
        head = '<?xml version="1.0" encoding="UTF-8"?>\n<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n'
        (folder / "sitemap.xml").write_text(f"{head}{addresses}</urlset>\n", encoding="utf-8")
        (folder / "robots.txt").write_text(
            f"User-agent: *\nSitemap: {urljoin(site, 'sitemap.xml')}\n", encoding="utf-8"
        )


def setup(app):
    app.connect("doctree-read", describe)
    app.connect("html-page-context", add_tags)
    app.connect("build-finished", write_lists)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
