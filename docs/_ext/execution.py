"""Executes the code cells of several pages at a time, before Sphinx reads the pages and takes outputs from the cache.

MyST-NB executes one page after another, and most pages compute on fewer cores than there are. A page that fails here is
executed again by MyST-NB, which reports the failure.
"""

import logging
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from jupyter_cache import get_cache
from jupyter_cache.executors import load_executor
from myst_nb.core.read import is_myst_markdown_notebook


def execute_pages(app, workers):
    """Executes the pages whose outputs are not in the cache.

    Args:
        app: the application of Sphinx.
        workers: number of pages at a time. They share the cores.
    """
    config = app.config
    if config.nb_execution_mode != "cache" or workers < 2:
        return
    paths = [path for path in sorted(app.srcdir.rglob("*.md")) if _is_executed(path, config)]
    cache = get_cache(config.nb_execution_cache_path)
    for path in paths:
        cache.add_nb_to_project(str(path), read_data={"type": "plugin", "name": "myst_nb_md"})
    waiting = [record.uri for record in cache.list_unexecuted([str(path) for path in paths])]
    waiting.sort(key=lambda path: "notebooks" not in path)  # those take longest
    execute = partial(_execute, config.nb_execution_cache_path, config.nb_execution_timeout)
    threads = max(1, (os.cpu_count() or 1) // workers)
    fresh = multiprocessing.get_context("spawn")  # the threads of this process would not survive a fork
    with ProcessPoolExecutor(workers, fresh, _prepare, (threads,)) as pool:
        for path in pool.map(execute, waiting):
            print(f"executed {os.path.relpath(path, app.srcdir)}", flush=True)


def _is_executed(path, config):
    excluded = any(path.match(pattern) for pattern in config.nb_execution_excludepatterns)
    return not excluded and is_myst_markdown_notebook(path.read_text(encoding="utf-8"))


def _prepare(threads):
    """Prepares a process whose kernels compute with so many threads."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    logging.disable(logging.INFO)


def _execute(cache, timeout, path):
    """Executes one page in a temporary folder. Returns its path."""
    load_executor("temp-serial", get_cache(cache)).run_and_cache(filter_uris=[path], timeout=timeout)
    return path
