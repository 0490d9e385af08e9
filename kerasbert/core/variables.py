"""Names of a model's variables that do not depend on the name of the model."""


def parts_of(model):
    """Returns the backbone of a model, or the model itself if it is a backbone."""
    return getattr(model, "backbone", model)


def paths_of_variables(model):
    """Returns {path without the name of the model: variable} for all weights of a model.

    Examples of paths are `block_3/attention/query/kernel` and `masked_lm/bias`.
    """
    backbone = parts_of(model)
    variables = list(backbone.weights)
    known = {id(variable) for variable in variables}
    variables += [variable for variable in model.weights if id(variable) not in known]
    named = {variable.path.split("/", 1)[1]: variable for variable in variables if id(variable) in known}
    prefix = getattr(model, "HEADS_UNDER", None)  # set where there are several heads, whose paths keep their first part
    for variable in variables[len(known) :]:
        named[f"{prefix}/{variable.path}" if prefix else variable.path.split("/", 1)[1]] = variable
    return named
