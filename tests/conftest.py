"""Fixtures: one Spark session for the whole suite, small corpora, and the large shared ones where they exist."""

import os
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("SHARDPIECE_SHARED", ROOT / ".." / "shared")).resolve()

TEXTS = [
    "The low lower lowest newest widest river runs, and runs, and runs.",
    "It's 2024: we've counted 1234567 words; they'll be 12.5% more!\n\n  Indented\ttabs\r\n",
    "",
    None,
    "naïve café — 日本語のテキスト、ひらがな カタカナ 漢字。 Ελληνικά кириллица हिन्दी עברית العربية 한국어",
    "def f(x):\n    return {'a': x ** 2, \"b\": [1, 2, 3]}  # comment\n",
    "👩‍👩‍👧 🏳️‍🌈 e\u0301 ﬁ ß ſ 'S 'Ll 'RE",
    "text that spells <|endoftext|> stays text",
    " ",
    "\n\n\n",
    "a" * 3000,
    "=" * 500 + " " * 300 + "x",
]


def corpus_rows(copies: int = 20) -> list[dict]:
    """Deterministic documents with nulls, empty ones and many scripts."""
    rows = []
    for copy in range(copies):
        for i, text in enumerate(TEXTS):
            varied = None if text is None else text.replace("runs", f"runs{copy % 7}")
            rows.append({"id": f"{copy}/{i}", "text": varied, "lang": ("en", "mul")[i % 2]})
    return rows


def write_corpus(directory: Path, rows: list[dict], files: int = 3, row_group_size: int = 25) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    schema = pa.schema([("id", pa.string()), ("text", pa.string()), ("lang", pa.string())])
    for f in range(files):
        table = pa.Table.from_pylist(rows[f::files], schema)
        pq.write_table(table, directory / f"part-{f:05}.parquet", row_group_size=row_group_size)
    return directory


def input_rows(directory: Path) -> list[dict]:
    """The rows in the order jobs read them."""
    return [row for path in sorted(directory.glob("*.parquet")) for row in pq.read_table(path).to_pylist()]


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus") / "data", corpus_rows())


@pytest.fixture(scope="session")
def session():
    """What stages take: a function that gives the suite's one Spark session (local[2])."""
    from shardpiece.config import JobConfig
    from shardpiece.pipeline.session import lazy_session

    with lazy_session(JobConfig(master="local[2]"), "tests") as get:
        yield get


@pytest.fixture
def commands_share_the_session(session, monkeypatch):
    """Commands that run in this process (``commands.called``) use the suite's Spark session."""
    from shardpiece.pipeline import run

    @contextmanager
    def shared(config, name):
        yield session

    monkeypatch.setattr(run, "lazy_session", shared)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The directory with real corpora and vocabularies; tests that need it skip where it is absent."""
    if not (SHARED / "corpus").is_dir():
        pytest.skip(f"no shared corpora at {SHARED} (set SHARDPIECE_SHARED)")
    return SHARED


@contextmanager
def environment(**values: str):
    """Set environment variables for a while."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
