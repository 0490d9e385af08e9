"""Runs a stack of blocks and collects the output of each block."""

import typing
from collections.abc import Callable, Sequence
from typing import Any


class BlockOutputs(typing.NamedTuple):
    """The outputs of a stack of blocks.

    Args:
        states: list of hidden states, float (b, s, m): the input of the first block, then the output of each block.
        extras: list with the `Extras` of each block: attention probabilities and caches, if requested.
    """

    states: list
    extras: list

    @property
    def weights(self):
        """List of the attention probabilities of each block, float (b, heads, queries, keys)."""
        return [extra.weights for extra in self.extras]

    @property
    def caches(self):
        """List of the caches of each block."""
        return [extra.cache for extra in self.extras]

    def requested(self, hidden_states=False, attention_weights=False):
        """The entries of a backbone's outputs that its arguments `hidden_states` and `attention_weights` request."""
        found = {"hidden_states": self.states} if hidden_states else {}
        return {**found, "attention_weights": self.weights} if attention_weights else found


def run_blocks(
    blocks: Sequence,
    x: Any,
    last: dict[str, Any] | None = None,
    of_block: Callable[[int], dict[str, Any]] | None = None,
    after: Callable | None = None,
    **arguments: Any,
) -> BlockOutputs:
    """Calls the blocks in order, each as `block(x, **arguments)` on the output of the previous block.

    Args:
        blocks: layers that return (x, `Extras`).
        x: float (b, s, m), the input of the first block.
        last: dict of additional arguments for the last block.
        of_block: function that takes the index i of a block, and returns a dict of additional arguments for it.
        after: function that is applied to the output x of each block.
        **arguments: arguments for all blocks.

    Returns: `BlockOutputs`.
    """
    states, extras = [x], []
    for i, block in enumerate(blocks):
        further = {} if of_block is None else of_block(i)
        if last is not None and i == len(blocks) - 1:
            further = {**further, **last}
        x, extra = block(x, **arguments, **further)
        x = x if after is None else after(x)
        states.append(x)
        extras.append(extra)
    return BlockOutputs(states, extras)


def present(**outputs: Any) -> dict[str, Any]:
    """Returns the outputs that are not None, as a dict, because Keras refuses None in the outputs of a layer."""
    return {name: output for name, output in outputs.items() if output is not None}
