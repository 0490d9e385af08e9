"""The variables of a run (model, optimizer and metrics), and their names in checkpoints."""

import re

import numpy as np
from keras import ops


class OtherRun(ValueError):
    """Raised if a checkpoint belongs to another run, with a different model, optimizer, recipe or backend."""


def run_variables(model):
    """Returns {key: variable} for the model and its optimizer, in order of creation.

    A key consists of the group, an index, which makes it unique, and the path of the variable, which makes it readable.
    """
    groups = {"model": model.variables, "optimizer": getattr(getattr(model, "optimizer", None), "variables", ())}
    return {f"{group}/{i:05d}/{v.path}": v for group, variables in groups.items() for i, v in enumerate(variables)}


def metric_variables(model):
    """Returns {key: variable} for the metrics, in order of creation."""
    return {f"metrics/{i:05d}/{v.path}": v for i, v in enumerate(model.metrics_variables)}


def assign_all(variables, state, path):
    """Assigns the saved arrays in `state` to `variables`, after comparing all of them.

    If a name, shape or dtype differs, it raises a ValueError that names the file `path`, and assigns nothing.
    """
    saved = {stable_name(key): x for key, x in state.items()}
    current = {stable_name(key): variable for key, variable in variables.items()}
    check_equal(saved, current, path)
    for key, variable in current.items():
        variable.assign(saved[key])


def check_equal(saved, current, path):
    """Raises a ValueError unless saved arrays and variables have the same names, shapes and dtypes."""
    problems = [f"  only in the checkpoint: {key}" for key in saved.keys() - current.keys()]
    problems += [f"  only in the model: {key}" for key in current.keys() - saved.keys()]
    for key in saved.keys() & current.keys():
        x, variable = saved[key], current[key]
        if x.shape != tuple(variable.shape) or x.dtype.name != variable.dtype:
            problems.append(f"  {key}: {x.dtype.name}{list(x.shape)} saved, {variable.dtype}{list(variable.shape)} now")
    if problems:
        shown = "\n".join(sorted(problems)[:20])
        raise OtherRun(
            f"The checkpoint {path} belongs to another model or optimizer; {len(problems)} variables differ:\n{shown}"
        )


def stable_name(key):
    """Removes the parts of a key that differ between processes, such as the `_7` in `model/00003/dense_7/kernel`.

    Keras numbers layers with equal names separately in each process. The index alone makes a key unique. For optimizer
    variables, only the last part of the path is kept, because the rest depends on whether `fit` or `restore` built the
    optimizer.
    """
    group, index, path = key.split("/", 2)
    path = path if group == "model" else path.rsplit("/", 1)[-1]
    return f"{group}/{index}/{re.sub(r'_[0-9]+(?=[/_]|$)', '', path)}"


def as_array(variable):
    return np.ascontiguousarray(ops.convert_to_numpy(variable)).reshape(variable.shape)


def itemsize(variable):
    return 2 if "16" in variable.dtype else 8 if "64" in variable.dtype else 4


def is_finite(x):
    return np.issubdtype(x.dtype, np.integer) or x.dtype == bool or bool(np.isfinite(x).all())
