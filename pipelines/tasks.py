"""The tasks that `finetune` knows by name: their kind, where the hub has them, and how their text is put."""

from dataclasses import dataclass

from kerasbert.data.text_to_text import LABELS

from .labelled import Columns, UsualColumns


@dataclass(frozen=True)
class TaskSpec:
    """A task.

    Args:
        kind: what its examples are; see `examples.KINDS`.
        hub: data set of the hub, or None: files only.
        splits: of training and of held-out examples.
        columns: what the data set calls them.
        prefix: put in front of the text for a text-to-text model (T5's names).
        impossible: questions may have no answer.
        labels: of classes, in the order of the data set; of two, F1 is that of the second.
    """

    kind: str
    hub: str | None = None
    splits: tuple[str, str] = ("train", "validation")
    columns: Columns = Columns()
    prefix: str = ""
    impossible: bool = False
    labels: tuple[str, ...] = ()

    def sources(self) -> tuple[str, str]:
        """Of the hub, for training and for measuring."""
        if self.hub is None:
            raise ValueError("This task is of a kind, not one data set. Received: no --data. Give files, or hf://name.")
        return tuple(f"hf://{self.hub}#{split}" for split in self.splits)


def _glue(name: str, first: str, second: str | None = None, kind: str = "classes", held_out: str = "validation"):
    labels = LABELS.get(name, ("not_entailment", "entailment") if name == "wnli" else ())
    return TaskSpec(
        kind, f"nyu-mll/glue:{name}", ("train", held_out), UsualColumns(first, second, "label"), labels=labels
    )


TASKS = {
    # Kinds, for data of one's own.
    "classes": TaskSpec("classes"),
    "labels": TaskSpec("labels"),
    "score": TaskSpec("score"),
    "ner": TaskSpec("tags"),
    "questions": TaskSpec("questions", impossible=True),
    "choices": TaskSpec("choices"),
    "sequences": TaskSpec("sequences"),
    # GLUE
    "cola": _glue("cola", "sentence"),
    "sst2": _glue("sst2", "sentence"),
    "mrpc": _glue("mrpc", "sentence1", "sentence2"),
    "stsb": _glue("stsb", "sentence1", "sentence2", "score"),
    "qqp": _glue("qqp", "question1", "question2"),
    "mnli": _glue("mnli", "premise", "hypothesis", held_out="validation_matched"),
    "mnli_mismatched": _glue("mnli", "premise", "hypothesis", held_out="validation_mismatched"),
    "qnli": _glue("qnli", "question", "sentence"),
    "rte": _glue("rte", "sentence1", "sentence2"),
    "wnli": _glue("wnli", "sentence1", "sentence2"),
    # Others
    "imdb": TaskSpec("classes", "stanfordnlp/imdb", ("train", "test"), UsualColumns("text", None, "label")),
    "snli": TaskSpec("classes", "stanfordnlp/snli", columns=UsualColumns("premise", "hypothesis", "label")),
    "conll2003": TaskSpec("tags", "eriktks/conll2003", columns=UsualColumns("tokens", None, "ner_tags")),
    "wnut17": TaskSpec("tags", "leondz/wnut_17", ("train", "test"), UsualColumns("tokens", None, "ner_tags")),
    "squad": TaskSpec("questions", "rajpurkar/squad"),
    "squad_v2": TaskSpec("questions", "rajpurkar/squad_v2", impossible=True),
    "swag": TaskSpec("choices", "allenai/swag:regular"),
    "race": TaskSpec("choices", "ehovy/race:all"),
    "arc_easy": TaskSpec("choices", "allenai/ai2_arc:ARC-Easy"),
    "arc_challenge": TaskSpec("choices", "allenai/ai2_arc:ARC-Challenge"),
    "translation": TaskSpec("sequences"),
    "summarization": TaskSpec("sequences", prefix="summarize: "),
    "cnn_dailymail": TaskSpec(
        "sequences",
        "abisee/cnn_dailymail:3.0.0",
        columns=UsualColumns("article", None, "highlights"),
        prefix="summarize: ",
    ),
    "wmt16_de_en": TaskSpec("sequences", "wmt/wmt16:de-en", columns=UsualColumns("de", None, "en")),
}
