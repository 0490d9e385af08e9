"""The tasks that `finetune` knows by name: their kind, data set on the hub, columns, and text format."""

from dataclasses import dataclass, replace

from kerasbert.command_line import did_you_mean
from kerasbert.data.tasks.text_to_text import LABELS
from kerasbert.data.text.json_files import closest

from .labeled import GUESSED, Columns, UsualColumns
from .tables import Layout


@dataclass(frozen=True)
class TaskSpec:
    """A task.

    Args:
        kind: the kind of its examples; see `examples.KINDS`, and for embedders and rerankers `text_columns`.
        hub: data set on the hub, or None if there are only files.
        splits: splits with the training and the held-out examples.
        columns: column names in the data set.
        prefix: text that is prepended for a text-to-text model, as in T5.
        impossible: whether questions may have no answer.
        labels: names of the classes, in the order of the data set. With two classes, F1 is computed for the second.
        layouts: layouts of the official files, if their extensions and headers are not enough to read them.
    """

    kind: str
    hub: str | None = None
    splits: tuple[str, str] = ("train", "validation")
    columns: Columns = Columns()
    prefix: str = ""
    impossible: bool = False
    labels: tuple[str, ...] = ()
    layouts: tuple[Layout, ...] = ()

    def with_columns(self, columns: Columns | None) -> "TaskSpec":
        """Returns the task with other columns, if any are given."""
        return self if columns in (None, GUESSED) else replace(self, columns=columns)

    def sources(self) -> tuple[str, str]:
        """The training data and the held-out data on the hub."""
        if self.hub is None:
            raise ValueError(
                "--data must be given, a file of examples such as train.csv or hf://name, unless --task is the name of "
                "a data set, such as sst2. Received: no --data."
            )
        return tuple(f"hf://{self.hub}#{split}" for split in self.splits)


# The files of CoLA have no header: source, label, the author's judgment, sentence (Warstadt et al. 2018).
COLA = Layout("tsv", ("source", "label", "judgment", "sentence"), {"label": "[01]", "judgment": r"[*?]*"})
# Stanford's files have a label and the text in each line, with various extensions.
LABEL_TEXT = Layout("label-text")
# Lines such as `DESC:manner What is ...` in Latin-1 (Li, Roth 2002). The six coarse labels are before the colon.
TREC = Layout("label-text", encoding="latin-1", label_end=":")
TREC_FINE = Layout("label-text", encoding="latin-1")
# Label, title and description, all quoted (Zhang et al. 2015). Some copies have a header.
AG_NEWS = Layout(
    "csv",
    ("label", "title", "description"),
    {"label": "[1-4]"},
    header=("class index", "title", "description"),
    text=("title", "description"),
)


def _glue(
    name: str,
    first: str,
    second: str | None = None,
    kind: str = "classes",
    held_out: str = "validation",
    layouts: tuple[Layout, ...] = (),
):
    labels = LABELS.get(name, ("not_entailment", "entailment") if name == "wnli" else ())
    columns = UsualColumns(first, second, "label")
    return TaskSpec(kind, f"nyu-mll/glue:{name}", ("train", held_out), columns, labels=labels, layouts=layouts)


TASKS = {
    # Kinds of tasks, for the user's data.
    "classes": TaskSpec("classes"),
    "labels": TaskSpec("labels"),
    "score": TaskSpec("score"),
    "ner": TaskSpec("tags"),
    "questions": TaskSpec("questions", impossible=True),
    "choices": TaskSpec("choices"),
    "sequences": TaskSpec("sequences"),
    "embed": TaskSpec("embed"),
    "sparse": TaskSpec("sparse"),
    "multivector": TaskSpec("multivector"),
    "rerank": TaskSpec("rerank"),
    # GLUE
    "cola": _glue("cola", "sentence", layouts=(COLA,)),
    "sst2": _glue("sst2", "sentence", layouts=(LABEL_TEXT,)),
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
    "ag_news": TaskSpec(
        "classes", "fancyzhx/ag_news", ("train", "test"), UsualColumns("text", None, "label"), layouts=(AG_NEWS,)
    ),
    "trec": TaskSpec(
        "classes", "CogComp/trec", ("train", "test"), UsualColumns("text", None, "coarse_label"), layouts=(TREC,)
    ),
    "trec_fine": TaskSpec(
        "classes", "CogComp/trec", ("train", "test"), UsualColumns("text", None, "fine_label"), layouts=(TREC_FINE,)
    ),
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


def task_of(name: str | None) -> TaskSpec:
    """Returns a task by name. For None, returns a generic task that assumes nothing about its files.

    Raises:
        ValueError: if the name is unknown.
    """
    if name is not None and name not in TASKS:
        raise ValueError(
            f"`task` must be one of {closest(name, TASKS)}. Received: {name!r}.{did_you_mean(name, TASKS)}"
        )
    return TaskSpec("classes") if name is None else TASKS[name]
