"""The command as users run it: one line and an exit code for every mistake.

Starting Python and Spark takes most of the time of a command, so most of them run in the suite's own process and session;
real processes show that nothing else is different.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import shardpiece
from shardpiece.cli import main
from shardpiece.text.patterns import PATTERNS
from shardpiece.text.pretokenizers import PRETOKENIZERS
from shardpiece.tokenizer import artifact
from tests.commands import called
from tests.conftest import corpus_rows, input_rows, write_corpus

COMMAND = str(Path(sys.executable).with_name("shardpiece"))


pytestmark = pytest.mark.usefixtures("commands_share_the_session")


def run(*args, stdin="", cwd="."):
    """The command in this process."""
    return called(lambda: main([*map(str, args)]), stdin, cwd)


def process(*args, env=None, cwd=None):
    """The command in a process of its own."""
    return subprocess.run(
        [COMMAND, *map(str, args)], capture_output=True, text=True, timeout=300, cwd=cwd,
        env={**os.environ, **(env or {})}, check=False,
    )  # fmt: skip


def fails(done, code, *fragments):
    """One line on stderr, the exit code, no traceback of any language."""
    assert done.returncode == code, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("shardpiece: error:")]
    assert len(lines) == 1, done.stderr
    for fragment in fragments:
        assert fragment in lines[0]
    assert "Traceback" not in done.stderr
    assert "\tat " not in done.stderr


@pytest.fixture(scope="module")
def tokenizer_path(tmp_path_factory):
    words = shardpiece.WordTable.from_texts([row["text"] or "" for row in corpus_rows(2)], "cl100k_base")
    path = tmp_path_factory.mktemp("tokenizer")
    artifact.save(shardpiece.train_bpe(words, 500, special_tokens=["<|endoftext|>"]), str(path))
    return path


def test_count_train_encode_decode(corpus, tmp_path):
    """Stage by stage with flags, as the README shows."""
    done = run("count", "--input", *sorted(corpus.glob("*.parquet")), "--text-column", "text", "--group-column", "lang",
               "--pretokenizer", "gpt2", "--output", tmp_path / "words", "--master", "local[2]")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "distinct words" in done.stdout
    assert "WARN" not in done.stderr
    assert all(line.startswith("shardpiece: ") for line in done.stderr.splitlines()), done.stderr
    done = run("train", "--words", tmp_path / "words", "--algorithm", "bpe", "--vocab-size", 500, "--min-frequency", 2,
               "--tie-break", "id", "--special-token", "<s>", "--special-token", "</s>", "--output", tmp_path / "tok")  # fmt: skip
    assert done.returncode == 0, done.stderr
    tokenizer = shardpiece.load(str(tmp_path / "tok"))
    assert tokenizer.special_tokens == {"<s>": 498, "</s>": 499}
    assert tokenizer.provenance["settings"]["tie_break"] == "id"
    done = run("encode", "--input", f"{corpus}/*.parquet", "--tokenizer", tmp_path / "tok", "--output",
               tmp_path / "shards", "--id-column", "id", "--format", "bin", "--append-eos", "--set",
               "encode.eos_token=</s>", "--master", "local[2]")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "bytes/token" in done.stdout
    done = run("decode", "--shards", tmp_path / "shards", "--tokenizer", tmp_path / "tok", "--limit", 30)
    rows = input_rows(corpus)[:30]
    assert [json.loads(line)["text"] for line in done.stdout.splitlines()] == [row["text"] or "" for row in rows]


def test_run_reads_a_configuration(corpus, tmp_path):
    config = tmp_path / "job.yaml"
    config.write_text(
        f"master: local[2]\ninput: ['{corpus}']\nid_column: id\noutput: out\ntrain: {{vocab_size: 450}}\n"
        "encode: {format: parquet}\n"
    )
    done = run("run", config, "--set", "train.vocab_size=400", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "skipped" not in done.stdout
    again = process("run", config, "--set", "train.vocab_size=400", cwd=tmp_path, env={"JAVA_HOME": "/nonexistent"})
    assert again.returncode == 0, again.stderr
    assert again.stdout.count("skipped: done and unchanged") == 3
    assert shardpiece.load(str(tmp_path / "out" / "tokenizer")).vocab_size == 400
    fails(run("run", config, cwd=tmp_path), 2, "Pass --overwrite")


def test_tokenize_shows_pieces(tokenizer_path):
    done = run("tokenize", "--tokenizer", tokenizer_path, "The newest café")
    pieces, ids, summary = done.stdout.splitlines()
    assert "".join(pieces.split("|")).startswith("The·newest·caf")
    tokenizer = shardpiece.load(str(tokenizer_path))
    assert list(map(int, ids.split())) == tokenizer.encode("The newest café")
    assert summary == f"{len(ids.split())} tokens, 16 bytes, {16 / len(ids.split()):.2f} bytes/token"
    done = run("tokenize", "--tokenizer", tokenizer_path, "--json", stdin="one line\nand two\n\n")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["text"] for row in rows] == ["one line", "and two", ""]
    assert rows[0]["ids"] == tokenizer.encode("one line")
    assert "".join(rows[1]["pieces"]) == "and two"


def test_invalid_bytes_on_standard_input(tokenizer_path):
    done = subprocess.run([COMMAND, "tokenize", "--tokenizer", str(tokenizer_path), "--json"], input=b"a\xffb\n",
                          capture_output=True, timeout=60, check=True)  # fmt: skip
    assert json.loads(done.stdout)["text"] == "a\ufffdb"


@pytest.mark.parametrize("command", ["count", "encode"])
def test_no_input_matches(command, tmp_path, tokenizer_path):
    args = ["--tokenizer", tokenizer_path] if command == "encode" else []
    done = run(command, "--input", f"{tmp_path}/*.parquet", *args, "--output", tmp_path / "out")
    fails(done, 2, f"{tmp_path}/*.parquet: no Parquet, JSON")
    fails(run(command, *args, "--output", tmp_path / "out"), 2, "no input given")


def test_a_missing_column(corpus, tmp_path):
    done = run("count", "--input", corpus, "--text-column", "body", "--output", tmp_path / "out")
    fails(done, 2, "part-00000.parquet: no column 'body'", "its columns: id, text, lang", "--text-column")


def test_an_output_that_cannot_be_written(corpus, tmp_path):
    (tmp_path / "file").write_text("in the way")
    done = run("count", "--input", corpus, "--output", tmp_path / "file" / "out")
    fails(done, 2, f"{tmp_path}/file/out: this output cannot be written", "Choose another --output")


def test_no_java(corpus, tmp_path):
    done = process("count", "--input", corpus, "--output", tmp_path / "out", env={"JAVA_HOME": str(tmp_path / "jdk")})
    fails(done, 2, "java does not run", "Spark 4 needs Java 17 or newer", "openjdk-17")
    bare = tmp_path / "bin"
    bare.mkdir()
    env = {"PATH": str(bare), "JAVA_HOME": ""}
    fails(process("demo", "--output", tmp_path / "demo", env=env), 2, "no Java found", "apt-get install")


def test_old_java(corpus, tmp_path):
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    done = process("count", "--input", corpus, "--output", tmp_path / "out", env={"JAVA_HOME": str(tmp_path / "jdk")})
    fails(done, 2, "is Java 11", "needs Java 17 or newer")
    java.write_text("#!/bin/sh\necho 'java version \"1.8.0_202\"' >&2\n")
    fails(process("demo", "--output", tmp_path / "demo", env={"JAVA_HOME": str(tmp_path / "jdk")}), 2, "is Java 8")


def test_an_executor_failure_is_one_line(tmp_path):
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"text": pa.array([b"ok", b"\xff"], pa.binary())}), tmp_path / "data" / "a.parquet")
    done = run("count", "--input", tmp_path / "data", "--output", tmp_path / "out", "--set", "invalid_utf8=error")
    fails(done, 1, f"{tmp_path}/data/a.parquet, row 1: invalid UTF-8 at byte 0")


def test_usage_mistakes(tmp_path, tokenizer_path, corpus):
    for args in (["cuont"], ["count", "--nonsense"], ["train", "--vocab-size", "many"], ["run"]):
        done = run(*args)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
    fails(
        run("train", "--words", tmp_path, "--output", tmp_path / "t"),
        2,
        "no word table here",
        "shardpiece count",
    )
    fails(
        run("train", "--words", tmp_path, "--output", tmp_path / "t", "--algorithm", "bpp"), 2, "train.algorithm", "bpp"
    )
    fails(run("tokenize", "--tokenizer", tmp_path, "x"), 2, "no tokenizer here", "shardpiece train")
    fails(run("decode", "--shards", tmp_path, "--tokenizer", tokenizer_path), 2, "no finished shards here")
    fails(run("run", tmp_path / "absent.yaml"), 2, "absent.yaml: cannot be read")
    fails(run("count", "--set", "x", "--input", corpus), 2, "KEY=VALUE")
    fails(run("count", "--input", corpus), 2, "no words given: pass --output")
    fails(run("train", "--output", tmp_path / "t"), 2, "no words given: pass --words")
    fails(run("encode", "--input", corpus, "--output", tmp_path / "s"), 2, "no tokenizer given: pass --tokenizer")
    fails(run("run", "a.yaml", "b.yaml"), 2, "run takes one configuration file")
    fails(run("train", "--words", tmp_path, "--output", tmp_path / "t", "--set", "vocab_size=9"), 2,
          "did you mean train.vocab_size")  # fmt: skip
    done = process("count", "--input", corpus, "--output", tmp_path / "w", "--master", "spork://x")
    fails(done, 2, "Spark did not start with master spork://x")


def test_inputs_that_the_shell_expanded(corpus, tmp_path):
    config = tmp_path / "job.yaml"
    config.write_text("master: local[2]\noutput: out\ntrain: {vocab_size: 400}\n")
    files = sorted(corpus.glob("*.parquet"))
    done = run("run", config, "--input", *files, "--output", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    manifest = json.loads((tmp_path / "out" / "shards" / "manifest.json").read_text())
    assert [entry["path"] for entry in manifest["input"]] == list(map(str, files))
    # In a place of its own, demo replaces nothing unasked.
    fails(run("demo", "--input", *files, "--output", tmp_path / "out"), 2, "Pass --overwrite")


def test_an_interrupt_is_one_line(tmp_path):
    """SIGINT in the middle of encoding: one line, exit code 130, no manifest; the same command then finishes."""
    rows = [{"id": str(i), "text": " ".join(f"{i * k:x}" for k in range(4000)), "lang": "en"} for i in range(1200)]
    data = write_corpus(tmp_path / "data", rows, files=2, row_group_size=50)
    words = shardpiece.WordTable.from_texts([row["text"] for row in rows[:20]], "gpt2")
    shardpiece.save(shardpiece.train_bpe(words, 500), str(tmp_path / "tok"))
    command = [COMMAND, "encode", "--input", str(data), "--tokenizer", str(tmp_path / "tok"), "--output",
               str(tmp_path / "shards"), "--set", "encode.shard_size=2MB", "--master", "local[1]"]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    journal = tmp_path / "shards" / "_journal"
    for _ in range(600):
        if journal.exists() and len(list(journal.iterdir())) >= 2:
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert all(line.startswith("shardpiece: ") for line in stderr.splitlines() if line), stderr
    assert "interrupted" in stderr.splitlines()[-1]
    assert not (tmp_path / "shards" / "manifest.json").exists()
    done = run(*command[1:])
    assert done.returncode == 0, done.stderr
    assert "were finished by an earlier run" in done.stderr
    manifest = json.loads((tmp_path / "shards" / "manifest.json").read_text())
    assert manifest["totals"]["documents"] == 1200
    listed = {file["name"] for shard in manifest["shards"] for file in shard["files"]}
    assert {path.name for path in (tmp_path / "shards").iterdir()} == listed | {
        "manifest.json",
        "statistics",
        "_journal",
    }


def test_help_names_every_command():
    done = process("--help")
    assert done.returncode == 0
    assert run("--help").stdout == done.stdout
    for command in ("count", "train", "encode", "run", "tokenize", "decode", "demo", "doctor"):
        assert command in done.stdout
        assert run(command, "--help").returncode == 0
    assert run("--version").stdout.strip() == f"shardpiece, version {shardpiece.__version__}"


def test_readers_may_leave(tokenizer_path):
    text = "low lower lowest\n" * 50_000
    command = f"{COMMAND} tokenize --tokenizer {tokenizer_path} --json | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], input=text, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert json.loads(done.stdout)["text"] == "low lower lowest"


def test_demo_checks_itself(corpus, tmp_path):
    done = run("demo", "--input", corpus, "--output", tmp_path / "demo", "--vocab-size", 400, "--master", "local[2]")
    assert done.returncode == 0, done.stderr
    assert "the first 240 documents, decoded, equal their input byte for byte" in done.stdout
    for figure in ("documents", "bytes", "distinct words", "merges", "tokens", "bytes/token", "MB/s"):
        assert figure in done.stdout


def test_doctor(tmp_path):
    done = process("doctor", "--path", tmp_path)
    assert done.returncode == 0, done.stdout
    for check in ("Python", "packages", "Java", "Numba kernels", "Spark", "file systems", str(tmp_path)):
        assert check in done.stdout
    done = process("doctor", "--path", tmp_path / "absent", env={"JAVA_HOME": str(tmp_path)})
    assert done.returncode == 2
    assert "WRONG  Java: " in done.stdout
    assert "apt-get install openjdk-17" in done.stdout


def test_write_permission_is_checked_before_the_job(tmp_path):
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("root writes everywhere, and setpriv is not here to become somebody else")
    data = write_corpus(tmp_path / "data", corpus_rows(1))
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o555)
    command = [COMMAND, "count", "--input", str(data), "--output", str(locked / "words")]
    if os.geteuid() == 0:
        for directory in (tmp_path, *tmp_path.parents):
            if directory.stat().st_uid == 0 and directory != Path("/"):
                directory.chmod(directory.stat().st_mode | 0o055)
        command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False,
                          env={**os.environ, "HOME": str(tmp_path), "NUMBA_CACHE_DIR": "/tmp/numba-nobody"})  # fmt: skip
    if "Permission denied" in done.stderr and "shardpiece: error" not in done.stderr:
        pytest.skip("another user cannot run this environment's Python")
    fails(done, 2, "this output cannot be written (Permission denied)")


def test_pretokenizers_are_listed_and_shown():
    listed = run("pretokenizers")
    assert listed.returncode == 0
    for name in PRETOKENIZERS:
        assert f"\n{name} " in f"\n{listed.stdout}"
    assert PATTERNS["o200k_base"] in listed.stdout
    assert "nmt_nfkc " in run("normalizers").stdout
    shown = run("tokenize", "--pretokenizer", "digits", "--pretokenizer", "gpt2", "it's 24")
    assert shown.stdout.splitlines() == ["it|'s|·|2|4", "5 words"]
    shown = run("tokenize", "--pretokenizer", "none", "--normalizer", "nfkc", "--normalizer", "lowercase", "ﬁＡ")
    assert shown.stdout.splitlines() == ["fia", "1 word"]
    as_json = run("tokenize", "--json", "--pretokenizer", "bert", "a, b")
    assert json.loads(as_json.stdout) == {"text": "a, b", "words": ["a", ",", "b"]}
    for arguments, message in (
        (["--pretokenizer", "bret"], "did you mean 'bert'"),
        (["--normalizer", "nfkd,lowercase"], "several times"),
        (["--normalizer", "replace"], "{type: replace, ...}"),
        (["--special-tokens-in-text", "token"], "needs a --tokenizer"),
        (["--normalizer", "lowercas"], "did you mean 'lowercase'"),
        (["--tokenizer", "x", "--pretokenizer", "bert"], "not both"),
    ):
        wrong = run("tokenize", *arguments, "text")
        fails(wrong, 2, message)
