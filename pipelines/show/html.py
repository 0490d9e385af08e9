"""The template of all pages: a self-contained file, readable in light and dark mode and at any width."""

import html

_STYLE = """
:root { color-scheme: light dark; --text: #1a1a1a; --page: #fff; --card: #f6f6f4; --line: #c9c9c4; --muted: #5c5c5c;
  --blue: #0060a0; --orange: #a84300; --mono: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
@media (prefers-color-scheme: dark) { :root { --text: #ececec; --page: #16181b; --card: #202327; --line: #474c52;
  --muted: #b0b0b0; --blue: #6cbcf2; --orange: #f5a45d; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 75rem; padding: 1rem; background: var(--page); color: var(--text);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; margin: .3rem 0; } h2 { font-size: 1.1rem; margin: 0 0 .2rem; } p { margin: .3rem 0; }
section { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: .8rem;
  margin: 1rem 0; }
.note { color: var(--muted); font-size: .9rem; }
table { border-collapse: collapse; } th, td { text-align: left; padding: .15rem .6rem .15rem 0; vertical-align: top; }
svg { max-width: 100%; height: auto; } svg text { fill: var(--text); font-family: var(--mono); }
button, select { font: inherit; color: inherit; background: var(--page); border: 1px solid var(--line);
  border-radius: .3rem; padding: .1rem .5rem; }
button[aria-pressed="true"] { background: var(--blue); color: var(--page); border-color: var(--blue); }
:focus-visible { outline: 2px solid var(--orange); outline-offset: 1px; }
"""


def page(title: str, body: str, style: str = "", script: str = "") -> str:
    """Creates a complete HTML page, which works without a network.

    Args:
        title: heading and title of the page, as plain text.
        body: HTML below the heading.
        style: CSS that is added to the CSS of all pages. Colors are the variables in `:root`.
        script: JavaScript that runs after the body has been loaded.
    """
    name = html.escape(title)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{name}</title>\n'
        f"<style>{_STYLE}{style}</style>\n</head>\n<body>\n<h1>{name}</h1>\n{body}\n"
        + (f"<script>{script}</script>\n" if script else "")
        + "</body>\n</html>\n"
    )
