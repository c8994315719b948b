"""Published tokenizers extended: their ids stay, and the transplant says what new tokens are made of."""

import pytest

import shardpiece
from shardpiece.errors import ConfigError
from shardpiece.tokenizer.bpe import BPEModel
from shardpiece.tokenizer.formats import gpt2_files, tiktoken
from shardpiece.train_config import TrainConfig
from shardpiece.training import trainers
from shardpiece.training.monitor import Monitor
from tests.tokenizer.published import CORPUS, bert_lines, random_ranks, rank_file, write

TEXTS = [*CORPUS, "abcab cabba abc bca " * 4, "zebra zebras zebra's zebra"]


def extended(base: shardpiece.Tokenizer, size: int):
    table = shardpiece.WordTable.from_texts(TEXTS, base.engine)
    config = TrainConfig(vocab_size=size, continue_from="somewhere", special_tokens=[])
    trained = trainers.train_sizes(table, config, base=base, monitor=Monitor())
    return trained.largest, trained.transplant


def rank_base(directory) -> shardpiece.Tokenizer:
    ranks = random_ranks(4)
    path = directory / "ranks"
    path.write_bytes(rank_file(ranks))
    return shardpiece.load(path, "cl100k_base", {"<|endoftext|>": len(ranks), "<|gap|>": len(ranks) + 7})


def gpt2_base(directory) -> shardpiece.Tokenizer:
    words = shardpiece.WordTable.from_texts(CORPUS[:4], "gpt2")
    files = gpt2_files.to_files(shardpiece.train_bpe(words, 300, special_tokens=["<|endoftext|>"]))
    for name, raw in files.items():
        (directory / name).write_bytes(raw)
    return shardpiece.load(directory)


@pytest.mark.parametrize("make", [rank_base, gpt2_base])
def test_a_published_tokenizer_is_extended(make, tmp_path):
    base = make(tmp_path)
    new, transplant = extended(base, base.vocab_size + 60)
    assert new.vocab_size == base.vocab_size + 60
    assert new.special_tokens == base.special_tokens
    assert [new.token_bytes(i) for i in range(base.vocab_size)] == [base.token_bytes(i) for i in range(base.vocab_size)]
    assert isinstance(new.model, BPEModel)
    assert new.model.ignore_merges == base.model.ignore_merges
    parts = {row["id"]: row for row in transplant.to_pylist()}
    assert [*parts] == [*range(base.vocab_size, new.vocab_size)]
    for i, row in parts.items():
        assert row["piece"] == new.token_bytes(i) == b"".join(map(base.token_bytes, row["old_ids"]))
    for text in TEXTS:
        old = [i for j in new.encode(text) for i in (parts[j]["old_ids"] if j in parts else [j])]
        assert old == base.encode(text), text
        assert new.decode(new.encode(text)) == text
    assert len(new.encode(TEXTS[-1])) < len(base.encode(TEXTS[-1]))
    shardpiece.save(new, str(tmp_path / "new"))
    assert shardpiece.load(tmp_path / "new").fingerprint == new.fingerprint
    # Ids that are no token leave gaps between special tokens, and Hugging Face's library has the same.
    peer = pytest.importorskip("tokenizers").Tokenizer.from_file(str(tmp_path / "new" / "tokenizer.json"))
    for text in [*TEXTS, "a<|gap|>b"]:
        assert peer.encode(text).ids == new.encode(text, "token"), text


def test_what_cannot_be_extended(tmp_path):
    words = shardpiece.WordTable.from_texts(TEXTS, "gpt2")
    bert = shardpiece.load(write(tmp_path / "bert", vocab__txt=bert_lines()))
    with pytest.raises(ConfigError, match="takes a BPE tokenizer, not one of kind wordpiece"):
        shardpiece.train_bpe(words, 500, continue_from=bert)
    with pytest.raises(ConfigError, match="count again with the tokenizer's"):
        shardpiece.train_bpe(words, 500, continue_from=rank_base(tmp_path))
    assert tiktoken.problem(rank_base(tmp_path)) is None
