"""Runs a stack of blocks and collects its outputs."""

import typing


class BlockOutputs(typing.NamedTuple):
    """The outputs of a stack of blocks.

    Args:
        states: the input of the first block, float (b, s, m), and the output of every block.
        extras: the `Extras` of every block: attention probabilities and caches, if requested.
    """

    states: list
    extras: list

    @property
    def weights(self):
        """The attention probabilities of every block, float (b, h, q, k)."""
        return [extra.weights for extra in self.extras]

    @property
    def caches(self):
        """The caches of every block."""
        return [extra.cache for extra in self.extras]

    def requested(self, hidden_states=False, attention_weights=False):
        """The entries that a backbone adds to its outputs for these two arguments of its `call`."""
        found = {"hidden_states": self.states} if hidden_states else {}
        return {**found, "attention_weights": self.weights} if attention_weights else found


def run_blocks(blocks, x, last=None, of_block=None, after=None, **arguments):
    """Calls every block as `block(x, **arguments)` on the output of the previous one.

    Args:
        blocks: layers that return (x, `Extras`).
        x: float (b, s, m).
        last: a dict of additional arguments of the last block.
        of_block: i -> dict of additional arguments of block i.
        after: x -> x, applied to the output of every block.
        **arguments: arguments of all blocks.

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
