"""Finding out what a file is, by content and then by name, in files and directories, and what cannot be one."""

import json
import random

import fsspec
import pytest

import shardpiece
from shardpiece.errors import ConfigError, FormatError, ShardpieceError
from shardpiece.tokenizer import artifact, loading
from tests.tokenizer.published import bert_lines, codes_file, gpt2_peer, random_ranks, rank_file, tekken_file, write


@pytest.fixture(scope="module")
def contents(tmp_path_factory) -> dict[str, bytes]:
    """A small file of each format by its usual name."""
    directory = tmp_path_factory.mktemp("gpt2")
    gpt2_peer().save_model(str(directory))
    return {
        "tekken.json": json.dumps(tekken_file(random_ranks(0))).encode(),
        "gpt2.tiktoken": rank_file(random_ranks(1)),
        "vocab.json": (directory / "vocab.json").read_bytes(),
        "merges.txt": (directory / "merges.txt").read_bytes(),
        "vocab.txt": "".join(f"{line}\n" for line in bert_lines()).encode(),
        "bpe.codes": codes_file(),
    }


FORMAT_OF = {
    "tekken.json": "tekken",
    "gpt2.tiktoken": "tiktoken",
    "vocab.json": "gpt2",
    "vocab.txt": "wordpiece",
    "bpe.codes": "subword-nmt",
}
GIVEN = {"gpt2.tiktoken": {"special_tokens": {}}}


@pytest.mark.parametrize("name", FORMAT_OF)
def test_content_says_what_a_file_is(name, contents, tmp_path):
    files = [name, "merges.txt"] if name == "vocab.json" else [name]
    for file in files:
        (tmp_path / file).write_bytes(contents[file])
    given = GIVEN.get(name, {})
    by_directory = shardpiece.load(tmp_path, **given)
    by_file = shardpiece.load(f"{tmp_path}/{name}", **given)
    assert by_directory.fingerprint == by_file.fingerprint
    origin = by_file.provenance["read_from"]
    assert (origin["format"], origin["name"]) == (FORMAT_OF[name], name)
    if name != "vocab.json":
        renamed = tmp_path / "some" / "thing"
        renamed.parent.mkdir()
        renamed.write_bytes(contents[name])
        if name == "gpt2.tiktoken":
            given = {**given, "pretokenizer": "gpt2"}
        assert shardpiece.load(renamed, **given).fingerprint == by_file.fingerprint
    # Any URL that fsspec reaches.
    memory = fsspec.filesystem("memory")
    for file in files:
        memory.pipe_file(f"/tok-{name}/{file}", contents[file])
    given.pop("pretokenizer", None)
    assert shardpiece.load(f"memory://tok-{name}/{name}", **given).fingerprint == by_file.fingerprint
    assert shardpiece.load(f"memory://tok-{name}", **given).fingerprint == by_file.fingerprint


def test_in_a_directory_there_is_an_order(contents, tmp_path):
    for name, raw in contents.items():
        (tmp_path / name).write_bytes(raw)
    assert [*loading.candidates([*contents])] == [
        "tekken.json", "gpt2.tiktoken", "vocab.json", "vocab.txt", "bpe.codes",
    ]  # fmt: skip
    for name in ("tekken.json", "gpt2.tiktoken", "vocab.json", "vocab.txt"):
        loaded = shardpiece.load(tmp_path, **GIVEN.get(name, {}))
        assert loaded.provenance["read_from"]["format"] == FORMAT_OF[name]
        assert (
            shardpiece.load(tmp_path, format=FORMAT_OF[name], **GIVEN.get(name, {})).fingerprint == loaded.fingerprint
        )
        (tmp_path / name).unlink()
    (tmp_path / "merges.txt").unlink()
    codes = shardpiece.load(tmp_path)
    assert codes.provenance["read_from"]["format"] == "subword-nmt"
    artifact.save(shardpiece.train_bpe(shardpiece.WordTable.from_texts(["low lower"], "gpt2"), 260), str(tmp_path))
    ours = shardpiece.load(tmp_path)
    assert ours.vocab_size == 260
    for file in ("tokenizer.json", "shardpiece.json"):
        assert shardpiece.load(tmp_path / file).fingerprint == ours.fingerprint
    with pytest.raises(ConfigError, match="pretokenizer was given"):
        shardpiece.load(tmp_path, "gpt2")


def test_ambiguity_is_an_error(contents, tmp_path):
    for name in ("a.tiktoken", "b.tiktoken"):
        (tmp_path / name).write_bytes(contents["gpt2.tiktoken"])
    with pytest.raises(FormatError, match="several tokenizers, name one: a.tiktoken, b.tiktoken"):
        shardpiece.load(tmp_path)
    other = write(tmp_path / "x", merges__txt=contents["merges.txt"])
    with pytest.raises(FormatError, match="vocab.json, which belongs to it, is not beside it"):
        shardpiece.load(f"{other}/merges.txt")
    (tmp_path / "renamed").write_bytes(contents["merges.txt"])
    with pytest.raises(FormatError, match="merges, but not said whether"):
        shardpiece.load(tmp_path / "renamed")
    # CLIP's merges have ends of words too, over bytes.
    (tmp_path / "clip").write_text("#version: 0.2\ni n\nð Ł\nðŁ ĺ\nt h</w>\n")
    with pytest.raises(FormatError, match="merges, but not said whether"):
        shardpiece.load(tmp_path / "clip")
    assert shardpiece.load(tmp_path / "clip", format="subword-nmt").vocab_size > 1
    named = tmp_path / "cl100k_base.tiktoken"
    named.write_bytes(contents["gpt2.tiktoken"])
    assert shardpiece.load(named, special_tokens={}).pretokenizer.name == "cl100k_base"


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "empty"),
        (b"\n\n  \n", "empty"),
        (b"\x00\x01\x02" * 50, "not a tokenizer in a format that is known"),
        (b"just some text\nin lines\n", "not a tokenizer in a format"),
        (b"PK\x03\x04" + bytes(100), "not a tokenizer in a format"),
        (b"{", "not readable as JSON"),
        (b"{" * 100_000, "not readable as JSON"),
        (b'{"a": ' * 5000 + b"1" + b"}" * 5000, "JSON"),
        (b"{}", "JSON, but neither"),
        (b'{"model": []}', "JSON, but neither"),
        (b'{"model": 5}', "a vocabulary has its merges beside it"),
        (b'{"vocab": [], "config": {"pattern": "."}}', "config.default_vocab_size is None"),
        (b'\xef\xbb\xbf{"a": 1}', "not a tokenizer in a format"),
    ],
)
def test_what_is_no_tokenizer(raw, message, tmp_path):
    path = tmp_path / "thing"
    path.write_bytes(raw)
    with pytest.raises(FormatError, match=message) as caught:
        shardpiece.load(path)
    assert str(path) in str(caught.value)


def test_mistakes_of_usage(contents, tmp_path, monkeypatch):
    path = tmp_path / "vocab.txt"
    path.write_bytes(contents["vocab.txt"])
    for given, message in (
        ({"pretokenizer": "gpt2"}, "pretokenizer was given, which is for tiktoken, gpt2 alone"),
        ({"special_tokens": ["<s>"]}, "special_tokens was given"),
        ({"format": "bert"}, "is not one of shardpiece, huggingface"),
    ):
        with pytest.raises(ConfigError, match=message):
            shardpiece.load(path, **given)
    with pytest.raises(FormatError, match="no such file or directory"):
        shardpiece.load(tmp_path / "absent")
    with pytest.raises(FormatError, match="no such file or directory"):
        shardpiece.load("memory://absent/x.json")
    with pytest.raises(FormatError, match="no tokenizer here"):
        shardpiece.load(tmp_path / "..")
    with pytest.raises(FormatError, match="no tokenizer here"):
        shardpiece.load(tmp_path, format="tekken")
    with pytest.raises(ConfigError, match="this one is empty"):
        shardpiece.load(" ")
    monkeypatch.setattr(loading, "MAX_BYTES", 100)
    with pytest.raises(FormatError, match="too many for a tokenizer"):
        shardpiece.load(path)


@pytest.mark.parametrize("name", FORMAT_OF)
def test_damaged_files_are_errors_and_nothing_else(name, contents, tmp_path):
    """Cut anywhere, with bytes changed, lines repeated and dropped: read, or refused with a message."""
    rng = random.Random(5)
    raw = contents[name]
    if name == "vocab.json":
        (tmp_path / "merges.txt").write_bytes(contents["merges.txt"])
    path = tmp_path / name
    lines = raw.split(b"\n")
    messages = []
    for number in range(45):
        if number % 3 == 0:
            spoiled = raw[: rng.randrange(len(raw))]
        elif number % 3 == 1:
            spoiled = bytearray(raw)
            for _ in range(rng.choice([1, 3, 30])):
                spoiled[rng.randrange(len(spoiled))] = rng.choice([0, 10, 32, 34, 57, 65, 97, 123, 128, 255])
        else:
            i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
            spoiled = b"\n".join([*lines[:i], lines[j], *lines[i + rng.randrange(2) :]])
        path.write_bytes(spoiled)
        try:
            shardpiece.load(path, **GIVEN.get(name, {})).encode("low lower")
        except ShardpieceError as error:
            messages.append(str(error))
    assert len(messages) > 5
    assert [message for message in messages if str(tmp_path) not in message] == []
