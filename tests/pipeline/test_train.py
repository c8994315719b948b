"""The train stage: what it writes, several sizes, checkpoints, interruptions, and vocabularies that grow."""

import csv
import json
import signal
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest

import shardpiece
from shardpiece.config import load_config
from shardpiece.errors import ConfigError, FormatError
from shardpiece.pipeline import train as stage
from shardpiece.pipeline.checkpoint import CHECKPOINT_FILE, Checkpoint, read_checkpoint
from shardpiece.pipeline.count import count


@pytest.fixture(scope="module")
def words(corpus, session, tmp_path_factory):
    """A word table with groups, on disk."""
    path = str(tmp_path_factory.mktemp("train") / "words")
    count(session, load_config(None, {"input": str(corpus), "count.output": path, "group_column": "lang"}))
    return path


def trained(words, output, session=None, **given):
    settings = {f"train.{key}": value for key, value in given.items() if key != "resume"}
    overrides = {"train.words": words, "train.output": str(output), "train.vocab_size": 500, **settings}
    return stage.train(load_config(None, overrides | {"resume": given.get("resume", False)}), session)


def test_every_token_has_its_final_frequency(words, tmp_path):
    trained(words, tmp_path / "t")
    tokenizer = shardpiece.load(str(tmp_path / "t"))
    with (tmp_path / "t" / "vocab.tsv").open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    assert [int(row["id"]) for row in rows] == list(range(500))
    expected = np.zeros(500, np.int64)
    for word, times in shardpiece.WordTable.read(words).to_counter().items():
        for token in tokenizer.encode(word.decode()):
            expected[token] += times
    assert [int(row["frequency"]) for row in rows] == expected.tolist()
    assert rows[499]["kind"] == "special"
    assert rows[499]["piece"] == "<|endoftext|>"
    assert all(bytes.fromhex(row["bytes"]) == tokenizer.token_bytes(i) for i, row in enumerate(rows))
    unused = sum(row["kind"] == "token" and row["frequency"] == "0" for row in rows)
    assert tokenizer.provenance["tokens_never_used"] == unused


def test_several_sizes_from_one_training(words, tmp_path):
    report = trained(words, tmp_path / "t", vocab_sizes="300,400")
    assert sorted(path.name for path in (tmp_path / "t").iterdir()) == ["300", "400"]
    for size in (300, 400):
        trained(words, tmp_path / f"alone{size}", vocab_size=size)
        several, alone = tmp_path / "t" / str(size), tmp_path / f"alone{size}"
        for name in ("tokenizer.json", "vocab.tsv"):
            assert (several / name).read_bytes() == (alone / name).read_bytes()
        assert shardpiece.load(str(several)).fingerprint == shardpiece.load(str(alone)).fingerprint
    assert report.figures["vocabulary"] == 400
    assert trained(words, tmp_path / "t", vocab_sizes="300,400").skipped
    config = load_config(None, {"output": str(tmp_path), "train.vocab_sizes": "1k,2k"})
    assert config.tokenizer_source == f"{tmp_path}/tokenizer/2048"


def test_a_sentencepiece_model_lies_beside_tokenizer_json(corpus, session, tmp_path):
    processor = pytest.importorskip("sentencepiece").SentencePieceProcessor
    for algorithm in ("unigram", "bpe"):
        given = {"train.algorithm": algorithm, "train.style": "sentencepiece", "train.vocab_size": 600}
        config = load_config(None, {"input": str(corpus), "output": str(tmp_path), **given, "overwrite": True})
        count(session, config)
        stage.train(config)
        tokenizer = shardpiece.load(str(tmp_path / "tokenizer"))
        peer = processor(model_file=str(tmp_path / "tokenizer" / "tokenizer.model"))
        for text in ("The lowest  river", "naïve café 日本語", "1234567!"):
            assert peer.encode(text) == tokenizer.encode(text)
            assert peer.decode(peer.encode(text)) == tokenizer.decode(tokenizer.encode(text))


def test_resume_goes_on_from_the_checkpoint(words, tmp_path, capfd):
    trained(words, tmp_path / "whole")
    # A run that is stopped at once leaves its mark; and the checkpoint of its first merges.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage, "_write", lambda *_: (_ for _ in ()).throw(RuntimeError("power cut")))
        patch.setattr(Checkpoint, "offer", lambda self, get: self.write(get()[:100]))
        with pytest.raises(RuntimeError):
            trained(words, tmp_path / "t")
    assert (tmp_path / "t" / CHECKPOINT_FILE).exists()
    trained(words, tmp_path / "t", resume=True)
    assert "100 merges of a checkpoint" in capfd.readouterr().err
    assert sorted(path.name for path in (tmp_path / "t").iterdir()) == [
        "shardpiece.json",
        "tokenizer.json",
        "vocab.tsv",
    ]
    for name in ("tokenizer.json", "shardpiece.json", "vocab.tsv"):
        assert (tmp_path / "t" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_damaged_checkpoint_is_named(words, tmp_path):
    trained(words, tmp_path / "t")
    key = json.loads((tmp_path / "t" / "shardpiece.json").read_text())["provenance"]["key"]
    assert read_checkpoint(str(tmp_path), key) is None
    (tmp_path / "_started.json").write_text(json.dumps({"key": key}))
    for content in (b"\x93NUMPY no", b"PK\x03\x04aaaa", b""):
        (tmp_path / CHECKPOINT_FILE).write_bytes(content)
        with pytest.raises(FormatError, match="damaged"):
            read_checkpoint(str(tmp_path), key)
    for bad in (np.zeros((3, 2)), np.zeros((3, 3)), np.full((3, 3), 1 << 40), np.full((3, 3), -5)):
        np.save(tmp_path / CHECKPOINT_FILE, bad)
        with pytest.raises(FormatError, match="damaged"):
            read_checkpoint(str(tmp_path), key)
    np.save(tmp_path / CHECKPOINT_FILE, np.array([[1, 2, 3]]))
    assert read_checkpoint(str(tmp_path), key).tolist() == [[1, 2, 3]]
    assert read_checkpoint(str(tmp_path), "another") is None


def test_interrupting_leaves_a_tokenizer_and_resume_finishes_it(words, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, time\n"
        "from shardpiece import cli\n"
        "from shardpiece.training import bpe, merge_steps\n"
        "tell = bpe.merge_progress\n"
        "def slowly(*given):\n"
        "    inner = tell(*given)\n"
        "    def progress(state):\n"
        "        inner(state)\n"
        "        print(state.done, flush=True)\n"
        "        time.sleep(0.5)\n"
        "    return progress\n"
        "bpe.merge_progress = slowly\n"
        "merge_steps._MERGES_AT_ONCE = 16\n"
        "cli.main(sys.argv[1:])\n"
    )
    command = ["train", "--words", words, "--vocab-size", "500", "--output"]
    process = subprocess.Popen(
        [sys.executable, str(script), *command, str(tmp_path / "t")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    for line in process.stdout:
        if line.strip().isdigit() and int(line) > 0:
            break
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    partial = shardpiece.load(str(tmp_path / "t" / "partial"))
    assert 257 < partial.vocab_size < 500
    assert partial.decode(partial.encode("lowest 日本")) == "lowest 日本"
    with pytest.raises(FormatError, match="no tokenizer here"):
        shardpiece.load(str(tmp_path / "t"))
    trained(words, tmp_path / "t", resume=True)
    trained(words, tmp_path / "whole")
    assert not (tmp_path / "t" / "partial").exists()
    for name in ("tokenizer.json", "shardpiece.json"):
        assert (tmp_path / "t" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_vocabulary_grows_and_says_what_new_tokens_are_made_of(words, tmp_path):
    trained(words, tmp_path / "old", vocab_size=300)
    trained(words, tmp_path / "new", vocab_size=400, continue_from=str(tmp_path / "old"), special_tokens=["<new>"])
    old, new = shardpiece.load(str(tmp_path / "old")), shardpiece.load(str(tmp_path / "new"))
    assert new.vocab_size == 400
    assert new.special_tokens == {"<|endoftext|>": 299, "<new>": 399}
    assert new.model.vocab[:299] == old.model.vocab
    rows = pq.read_table(tmp_path / "new" / "transplant.parquet").to_pylist()
    assert [row["id"] for row in rows] == list(range(300, 399))
    for row in rows:
        assert b"".join(old.token_bytes(i) for i in row["old_ids"]) == row["piece"] == new.token_bytes(row["id"])
        assert len(row["old_ids"]) > 1
    # Learned on the same words, the old and the new merges are those of one training.
    trained(words, tmp_path / "once", vocab_size=399)
    once = shardpiece.load(str(tmp_path / "once")).model
    assert [t for t in new.model.vocab if t] == [t for t in once.vocab if t][:398]
    peer = pytest.importorskip("tokenizers").Tokenizer.from_file(str(tmp_path / "new" / "tokenizer.json"))
    assert peer.encode("The lowest naïve 日本語").ids == new.encode("The lowest naïve 日本語")


def test_a_tokenizer_of_other_words_cannot_grow(words, tmp_path):
    other = shardpiece.train_bpe(shardpiece.WordTable.from_texts(["ab"], "gpt2"), 257)
    shardpiece.save(other, str(tmp_path / "gpt2"))
    with pytest.raises(ConfigError, match="count again with the tokenizer's"):
        trained(words, tmp_path / "t", vocab_size=400, continue_from=str(tmp_path / "gpt2"))


def test_parity_is_reported(words, tmp_path):
    trained(words, tmp_path / "t", parity={"num_global": 20})
    provenance = json.loads((tmp_path / "t" / "shardpiece.json").read_text())["provenance"]
    assert set(provenance["parity"]["costs"]) == {"en", "mul"}
    with pytest.raises(ConfigError, match=r"parity\.units: .* en, mul"):
        trained(words, tmp_path / "u", parity={"units": {"en": 3}})


def test_mistakes_leave_what_is_there(words, tmp_path):
    trained(words, tmp_path / "t")
    before = {path.name: path.read_bytes() for path in (tmp_path / "t").iterdir()}
    for mistake in ({"weights": {"en": 1}}, {"algorithm": "unigram", "vocab_size": 10}):
        config = load_config(None, {"train.words": words, "train.output": str(tmp_path / "t"), "overwrite": True,
                                    **{f"train.{key}": value for key, value in mistake.items()}})  # fmt: skip
        with pytest.raises(ConfigError):
            stage.train(config)
        assert {path.name: path.read_bytes() for path in (tmp_path / "t").iterdir()} == before
        with pytest.raises(ConfigError):
            trained(words, tmp_path / "new", **mistake)
        assert not (tmp_path / "new").exists()


def test_resume_of_what_has_no_checkpoint_says_so(words, tmp_path, capfd):
    for number, given in enumerate(({"algorithm": "wordpiece"}, {"parity": {}})):
        trained(words, tmp_path / f"{number}", resume=True, **given)
        assert "has no checkpoint, it begins anew" in capfd.readouterr().err


@pytest.mark.parametrize("where", ["driver", "spark"])
def test_the_certificate_of_a_cut_is_kept(words, session, tmp_path, where):
    trained(words, tmp_path / "t", session, cut={"where": where})
    trained(words, tmp_path / "whole")
    provenance = json.loads((tmp_path / "t" / "shardpiece.json").read_text())["provenance"]
    assert provenance["cut"]["holds"]
    for name in ("tokenizer.json", "vocab.tsv"):
        assert (tmp_path / "t" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
