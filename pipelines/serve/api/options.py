"""How the API is served, as options of the command."""

from dataclasses import dataclass
from pathlib import Path

from ...command_line.options import Options


@dataclass(frozen=True)
class Server(Options):
    """How the API is served.

    Args:
        workers: number of processes. Each holds the models, and has its share of the cores.
        token_file: file with the bearer token that requests must have. Default: the environment variable
            KERASBERT_TOKEN, if it is set.
        without_token: whether other machines may use the models without a token.
    """

    workers: int = 1
    token_file: Path | None = None
    without_token: bool = False
