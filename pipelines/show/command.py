"""Draws pictures: corrupted text, attention, masks, curves, predictions and neighbors of words.

python -m pipelines.show corruption t5.base "Thank you for inviting me to your party last week."
python -m pipelines.show attention saved_models/quickstart "The cat sat on the mat." --output attention.html
python -m pipelines.show masks --output masks.html
python -m pipelines.show curves runs/tiny runs/small --output curves.png
python -m pipelines.show predictions saved_models/quickstart "The cat sat on the [MASK]."
python -m pipelines.show neighbors saved_models/quickstart bank --output neighbors.html
"""

import functools
from pathlib import Path
from typing import Literal

import kerasbert
from kerasbert.objectives import MaskedLM, ReplacedTokenDetection

from ..command_line.command import Command, Commands
from ..reading.tokenizers import load_tokenizer
from ..recipes.recipe import find_recipe
from . import attention as attention_pictures
from . import corruption as corruption_pictures
from . import curves as curve_pictures
from . import masks as mask_pictures
from . import neighbors as neighbor_pictures
from . import papers as paper_pictures
from . import predictions as prediction_pictures
from . import rows as row_pictures
from .bars import bars_figure, print_bars
from .console import terminal_console
from .corruption import Example
from .files import check_pictures, write_pictures
from .html import page
from .sentences import NEXT

SENTENCE = "Thank you for inviting me to your party last week."


def corruption(
    recipe: str = "all",
    sentence: str = SENTENCE,
    following: str = NEXT,
    translation: str = "",
    seed: int = 0,
    draws: int = 1,
    pieces: int = 0,
    tokenizer: str | None = None,
    generator: str = "",
    output: Path | None = None,
    set: tuple[str, ...] = (),
) -> None:
    """Shows how a recipe corrupts a sentence: the inputs and the targets of a run, in color.

    The rows are taken from the batches of a run on a corpus that contains this sentence.

    Args:
        recipe: name of a recipe, such as t5.base; "all" for every objective; "papers" for the examples of the papers,
            which have fixed sentences.
        sentence: the text. Line breaks separate sentences.
        following: the sentence that follows it, for pairs of segments.
        translation: translation of the sentence, for recipes with pairs of languages.
        seed: seed of the noise.
        draws: number of times that the noise is drawn.
        pieces: split words into pieces of at most this many letters, to show how the noise treats words. With 0, words
            are not split. Cannot be combined with `tokenizer`.
        tokenizer: folder or hf://org/name of a tokenizer. Default: whole words, and the special tokens of the family.
        generator: folder of a masked language model, or of a model for replaced token detection, that samples ELECTRA's
            replaced tokens. Default: random words are used.
        output: .html file for a page with the same pictures.
        set: overrides of the recipe, such as data.noise.rate=0.3.
    """
    outputs = (output,) if output else ()
    check_pictures(outputs, (".html",))
    chosen = _generator(generator)
    loaded = load_tokenizer(tokenizer) if tokenizer else chosen.tokenizer if chosen else None
    if pieces < 0 or (pieces and loaded):
        raise ValueError(
            f"`pieces` must be at least 0, and is for the default tokenizer. Received: {pieces}"
            f"{' and a tokenizer' if loaded else ''}."
        )
    example = Example(sentence, following, translation, seed, draws, loaded, pieces, generator=chosen)
    if recipe == "papers":
        pictures, title = paper_pictures.papers(), "Examples of the papers"
    elif recipe == "all":
        pictures, title = corruption_pictures.every_objective(example, set), "Every objective"
    else:
        settings = find_recipe(recipe).with_settings(list(set))
        pictures, title = corruption_pictures.corrupted(settings, example), f"Corruption by {recipe}"
    row_pictures.print_rows(pictures, terminal_console())
    write_pictures(outputs, {".html": lambda: page(title, row_pictures.rows_as_html(pictures), row_pictures.STYLE)})


def _generator(path: str) -> MaskedLM | None:
    if not path:
        return None
    model = kerasbert.load(path)
    model = model.generator if isinstance(model, ReplacedTokenDetection) else model
    if not isinstance(model, MaskedLM):
        raise ValueError(f"`generator` must be a masked language model. Received: {path}, a {type(model).__name__}.")
    return model


def attention(
    model: str,
    text: str,
    second: str = "",
    block: int = 0,
    head: int = 0,
    view: Literal["model", "head"] = "model",
    most: int = 64,
    output: tuple[Path, ...] = (Path("attention.html"),),
) -> None:
    """Draws the attention of a model: lines between the tokens of one head, and thumbnails of all heads.

    Args:
        model: folder of a model of any kind, a shipped model such as bert_mini_en, or hf://org/name.
        text: the text. For an encoder-decoder, the text that the encoder reads.
        second: the second text of a pair. For an encoder-decoder, the text that the decoder reads.
        block: block of the head that is shown first.
        head: the head that is shown first.
        view: what an image shows: all heads, or the head that `block` and `head` select. For an encoder-decoder, it
            shows the attention from the decoder to the encoder. An .html page contains all of this.
        most: maximum number of tokens in a text.
        output: files: .html for a page that works without a network, .png and .svg for images.
    """
    check_pictures(output, (".html", ".png", ".svg"))
    backbone, tokenizer = attention_pictures.load_backbone(model)
    weights = attention_pictures.attention_of(backbone, tokenizer, text, second, most)
    blocks, heads = weights[0].values.shape[:2]
    if not (0 <= block < blocks and 0 <= head < heads):
        raise ValueError(
            f"`block` must be below {blocks}, and `head` below {heads}. Received: block={block}, head={head}."
        )
    one = weights[-1]

    def figure():
        return (
            attention_pictures.head_figure(one, block, head) if view == "head" else attention_pictures.model_figure(one)
        )

    title = f"Attention of {Path(model).name}"
    html = functools.partial(attention_pictures.attention_page, title, weights, block, head)
    write_pictures(output, {".html": html, ".png": figure, ".svg": figure})


def masks(words: tuple[str, ...] = mask_pictures.WORDS, window: int = 2, output: tuple[Path, ...] = ()) -> None:
    """Draws attention masks, which say which tokens a token may attend to.

    The masks are those of BERT, GPT, prefix language models, ModernBERT's windows, packed rows, and XLNet's two
    streams.

    Args:
        words: tokens of the row.
        window: maximum distance to which a token attends on both sides in local layers.
        output: files: .html for a page, .png and .svg for images.
    """
    check_pictures(output, (".html", ".png", ".svg"))
    pictures = mask_pictures.masks(words, window)
    print(mask_pictures.masks_as_text(pictures))
    figure = functools.partial(mask_pictures.masks_figure, pictures)
    html = functools.partial(mask_pictures.masks_page, pictures)
    write_pictures(output, {".html": html, ".png": figure, ".svg": figure})


def curves(runs: tuple[Path, ...], output: tuple[Path, ...] = (Path("curves.png"),)) -> None:
    """Draws the curves of trainings: losses, scores and learning rates.

    If the log contains it, the loss of a unigram model, which uses only token frequencies, is a dotted line.

    Args:
        runs: folders of runs of `pretrain` or of fine-tuned models, which have a run for each seed; at most seven runs.
        output: image files, .png, .svg or .pdf.
    """
    kinds = (".png", ".svg", ".pdf")
    check_pictures(output, kinds)
    figure = curve_pictures.curves_figure(curve_pictures.logged_runs(list(runs)))
    write_pictures(output, {kind: lambda: figure for kind in kinds})


def predictions(model: str, texts: tuple[str, ...], top: int = 5, output: tuple[Path, ...] = ()) -> None:
    """Shows the most likely tokens at the masks of texts, with their probabilities.

    For a causal language model, it shows the most likely next tokens, and for a discriminator, the probability that
    each token was replaced.

    Args:
        model: folder of a model, a shipped model such as bert_mini_en, or hf://org/name.
        texts: texts with the mask token of the model, such as [MASK].
        top: number of tokens to show.
        output: files: .html for a page, .png and .svg for images.
    """
    check_pictures(output, (".html", ".png", ".svg"))
    pictures = prediction_pictures.predictions(kerasbert.load(model), texts, top)
    print_bars(pictures, terminal_console())
    title = f"Predictions of {Path(model).name}"
    html = functools.partial(prediction_pictures.predictions_page, title, pictures)
    figure = functools.partial(bars_figure, pictures, "probability")
    write_pictures(output, {".html": html, ".png": figure, ".svg": figure})


def neighbors(
    model: str,
    word: str = "bank",
    sentences: tuple[str, ...] = neighbor_pictures.SENTENCES,
    table: str = "",
    top: int = 8,
    layer: int = -1,
    output: tuple[Path, ...] = (),
) -> None:
    """Shows the neighbors of a word in a table of vectors, and in a model, where they depend on the sentence.

    Args:
        model: folder of a model, a shipped model such as bert_mini_en, or hf://org/name.
        word: the word.
        sentences: sentences, some of which contain the word. All words in them are candidates for its neighbors in
            context.
        table: folder of the model whose token embeddings are the table, such as a model trained with word_vectors.tiny.
            Default: the token embeddings of `model`.
        top: number of neighbors.
        layer: index of the hidden states that are used as contextual vectors: 0 for the embeddings, n for the output of
            the n-th block, and -1 for the last.
        output: files: .html for a page, .png and .svg for images of the bars.
    """
    check_pictures(output, (".html", ".png", ".svg"))
    static = attention_pictures.load_backbone(table) if table else None
    backbone, tokenizer = attention_pictures.load_backbone(model)
    found = neighbor_pictures.neighbors(backbone, tokenizer, word, sentences, static, top, layer)
    neighbor_pictures.print_neighbors(found, terminal_console())
    html = functools.partial(neighbor_pictures.neighbors_page, f"Neighbors of {word}", found)
    figure = functools.partial(bars_figure, [found.static, *found.contextual], "cosine")
    write_pictures(output, {".html": html, ".png": figure, ".svg": figure})


main = Commands(
    {
        "corruption": Command(corruption, first=("recipe", "sentence")),
        "attention": Command(attention, first=("model", "text")),
        "masks": Command(masks),
        "curves": Command(curves, first=("runs",)),
        "predictions": Command(predictions, first=("model", "texts")),
        "neighbors": Command(neighbors, first=("model", "word", "sentences")),
    },
    summary="Visualize corruption, attention, curves and predictions, in the terminal and as files.",
)
