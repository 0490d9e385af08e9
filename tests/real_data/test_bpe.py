"""BPE codes and segmentation equal those of subword-nmt."""

import collections

from kerasbert.data.bpe import Codes, learn_bpe


def test_subword_nmt(shared_data):
    """Its codes give its segmentation, and its corpus gives its codes, in their order."""
    folder = shared_data / "metric_oracles" / "subword_nmt"
    lines = (folder / "corpus.en").read_text(encoding="utf-8").rstrip("\n").split("\n")
    expected = (folder / "corpus.bpe.ref.en").read_text(encoding="utf-8").rstrip("\n").split("\n")
    codes = Codes.read(folder / "bpe.ref")
    assert codes.end == "glued" and len(codes.merges) == 1_000
    assert [codes.segment(line) for line in lines] == [line.strip() for line in expected]
    counts = collections.Counter(word for line in lines for word in line.split(" ") if word)
    assert learn_bpe(counts, 1_000) == codes.merges
