"""The settings of the documentation, which `make docs` builds with Sphinx, MyST and MyST-NB.

Code cells run in a kernel of the same environment, on PyTorch unless KERAS_BACKEND names another backend, and in a
temporary folder. Their outputs are cached by the code of the page and by that of the package.
"""

import hashlib
import os
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
BUILD = ROOT / "build" / "docs"

# The kernels inherit the environment: they find the package, the pipelines and the `python` that runs Sphinx.
os.environ.setdefault("KERAS_BACKEND", "torch")
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
os.environ["KERASBERT_DOCS"] = str(DOCS)  # where pages find docs/data
os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"
# A profile for the kernels: that of the user may change outputs, and the default one warns of TCP on loopback. Results
# are shown with four significant digits.
os.environ["IPYTHONDIR"] = str(BUILD / "ipython")
_profile = BUILD / "ipython" / "profile_default"
_profile.mkdir(parents=True, exist_ok=True)
(_profile / "ipython_kernel_config.py").write_text(
    'c = get_config()\nc.IPKernelApp.log_level = "ERROR"\nc.PlainTextFormatter.float_precision = "%.4g"\n',
    encoding="utf-8",
)
sys.path[:0] = [str(ROOT), str(DOCS / "_ext")]

import kerasbert  # noqa: E402  (after the backend is chosen)

project = "kerasbert"
author = "the kerasbert authors"
copyright = "2026, the kerasbert authors. Apache License 2.0"
version = release = kerasbert.__version__

# The addresses of the repository (on GitHub, GitLab or Bitbucket) and of these pages, both ending in "/", once there
# are some. They give the pages links to an editor, canonical addresses, a sitemap, and a picture in shared links.
REPOSITORY = os.environ.get("DOCS_REPOSITORY", "")
SITE = os.environ.get("DOCS_SITE", "")

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "checkpoint_tables",
    "recipe_gallery",
    "commands",
    "docstrings",
    "family_pages",
    "long_code",
    "native_math",
    "searching",
    "sections",
    "source_links",
    "summaries",
    "web",
]
exclude_patterns = ["_ext", "_templates", "data", "README.md"]
source_suffix = {".md": "myst-nb", ".rst": "restructuredtext"}
myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "dollarmath", "substitution"]
myst_heading_anchors = 3
myst_substitutions = {
    "clone": f"a clone of [the repository]({REPOSITORY})" if REPOSITORY else "a clone of the repository"
}
myst_links_external_new_tab = False

# === Code cells ===


def _code_of_the_package():
    """A hash of the sources that code cells run: outputs are cached until one of them changes."""
    digest = hashlib.sha256(os.environ["KERAS_BACKEND"].encode())
    for folder in ("kerasbert", "pipelines"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:12]


nb_execution_mode = os.environ.get("DOCS_EXECUTION", "cache")
nb_execution_cache_path = os.environ.get("DOCS_CACHE", str(BUILD / "cache" / _code_of_the_package()))
nb_execution_in_temp = True
nb_execution_timeout = 600
nb_execution_raise_on_error = False  # a failure is a warning, and so all of them are listed
nb_execution_show_tb = True
nb_merge_streams = True
nb_code_prompt_show, nb_code_prompt_hide = "Show the code", "Hide the code"  # of cells with the tag hide-input
nb_output_stderr = "remove"  # warnings name files of the machine that built the pages
nb_mime_priority_overrides = [("html", "application/vnd.jupyter.widget-view+json", None)]
# DOCS_ONLY="guides/pretrain families/bert" executes these pages only, while they are written.
if os.environ.get("DOCS_ONLY"):
    _wanted = set(os.environ["DOCS_ONLY"].split())
    _pages = [path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md")]
    # Whole paths, because checkpoints.md would also exclude guides/checkpoints.md.
    nb_execution_excludepatterns = [f"{DOCS.as_posix()}/{page}.md" for page in _pages if page not in _wanted]

# === API ===

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
autodoc_default_options = {"members": True, "imported-members": True}
autodoc_preserve_defaults = True
autodoc_inherit_docstrings = False
default_role = "code"
smartquotes = False  # values such as "classes" are code
python_use_unqualified_type_names = True
maximum_signature_line_length = 90
add_module_names = False
toc_object_entries = False

# === Site ===

html_theme = "furo"
html_math_renderer = "mathml"
html_title = f"kerasbert {version}"
html_baseurl = SITE
html_favicon = "_static/favicon.svg"
html_additional_pages = {"404": "404.html"}
templates_path = ["_templates"]
html_static_path = ["_static"]
html_search_scorer = str(DOCS / "_ext" / "scorer.js")
html_css_files = ["site.css", "objective.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "navigation_with_keys": True,
    # Muted text has a contrast of at least 4.5, also where a page is pointed at or highlighted (WCAG 2, AA).
    "light_css_variables": {"code-font-size": "79%", "color-foreground-muted": "#666a71"},
    "dark_css_variables": {"color-foreground-muted": "#8b9097", "color-highlighted-background": "#061d3a"},
}
if REPOSITORY:
    html_theme_options |= {"source_repository": REPOSITORY, "source_branch": "main", "source_directory": "docs/"}
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"
copybutton_exclude = ".linenos, .gp, .go"


def _write_styles(app, error):
    """The style of the pictures of objectives, inside their box."""
    from pipelines.show.rows import STYLE

    if error is None and app.builder.format == "html":
        (Path(app.outdir) / "_static" / "objective.css").write_text(f".objective {{{STYLE}}}\n", encoding="utf-8")


def setup(app):
    app.connect("build-finished", _write_styles)
