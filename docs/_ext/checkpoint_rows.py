"""The table of published checkpoints that are read, from docs/data/checkpoints.json.

`python -m tests.checkpoints.fleet.peers table FOLDER` writes the file, from the records of the tests.
"""

import json
from pathlib import Path

FILE = Path(__file__).resolve().parents[1] / "data" / "checkpoints.json"


def read_content():
    return json.loads(FILE.read_text(encoding="utf-8"))


def checkpoints_table(content):
    """Returns the table in Markdown.

    Args:
        content: the content of the file.
    """
    peers = content["peers"]
    names = [f"{name} {peer['version']}" for name, peer in peers.items()]
    lines = [
        " | ".join(["| checkpoint", "`model_type`", "here", *names, "exceptions |"]),
        "|---" * (4 + len(names)) + "|",
    ]
    for row in content["rows"]:
        here = ", ".join(f"`{name}`" for name in row["classes"].split(", ")) if row["classes"] else "refused by name"
        others = [_of_peer(peer["found"].get(row["name"])) for peer in peers.values()]
        lines.append(" | ".join([f"| {row['name']}", f"`{row['type']}`", here, *others, f"{row['note']} |"]))
    return "\n".join(lines)


def _of_peer(found):
    """What another library reads, given (encoder, tokens): "equal", "different", or the type of an error."""
    if found is None:
        return "not asked"
    encoder, tokens = (result == "equal" for result in found)
    if encoder:
        return "equal" if tokens else "encoder only"
    differs = "; encoder differs" if found[0] == "different" else ""
    return f"tokens only{differs}" if tokens else f"no{differs}"
