"""Three real corpora of more than 20 MB: the merges of Hugging Face and rustbpe, one by one, at 32k and at 100k tokens."""

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import shardpiece
from tests.training.test_bpe import hugging_face_merges, rustbpe_tokens, spelled_merges

SIZES = (32_000, 100_000)
CORPORA = {
    "English and code": lambda lang, group: lang == "en" or group == "code",
    "multilingual": lambda lang, group: group == "web_multilingual",
    "Chinese, Japanese, Korean": lambda lang, group: lang.split("-")[0] in ("zh", "ja", "ko", "yue"),
}
BYTES = 22_000_000


def corpus(shared, belongs) -> list[str]:
    """The documents that belong, in order; of too many an even sample."""
    columns = []
    for path in sorted(shared.glob("corpus/*/*.parquet")):
        table = pq.read_table(path, columns=["text", "lang"])
        wanted = [belongs(lang or "", path.parent.name) for lang in table["lang"].to_pylist()]
        columns.append(table["text"].filter(pa.array(wanted)).cast(pa.large_string()))
    texts = pa.chunked_array([chunk for column in columns for chunk in column.chunks], pa.large_string())
    step = max(1, int(pc.sum(pc.binary_length(texts)).as_py() // BYTES))
    texts = texts.take(pa.array(range(0, len(texts), step))).to_pylist()
    assert sum(len(text.encode()) for text in texts) > 20_000_000
    return texts


@pytest.mark.slow
@pytest.mark.parametrize("name", CORPORA)
def test_merges_are_those_of_hugging_face_and_rustbpe(shared, name):
    pytest.importorskip("tokenizers")
    pytest.importorskip("rustbpe")
    texts = corpus(shared, CORPORA[name])
    words = shardpiece.WordTable.from_texts(texts, "cl100k_base")
    pattern = words.engine.pretokenizer.pattern
    for size in SIZES:
        by_character = shardpiece.train_bpe(words, size, tie_break="id")
        assert by_character.vocab_size == size
        assert spelled_merges(by_character) == hugging_face_merges(texts, pattern, size)
        raw = shardpiece.train_bpe(words, size, tie_break="id", alphabet_order="raw")
        assert list(raw.model.vocab) == rustbpe_tokens(texts, pattern, size)
        cut = shardpiece.train_bpe(words, size, tie_break="id", cut={})
        assert cut.fingerprint == by_character.fingerprint
        assert cut.provenance["cut"]["holds"]
