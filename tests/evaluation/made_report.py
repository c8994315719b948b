"""A made-up report with everything in it, hostile text included. Its figures are invented but fit together."""

from shardpiece.evaluation import schema
from shardpiece.evaluation.definitions import DEFINITIONS, WORD_RULE
from shardpiece.tokenizer.pieces import readable

# Would set a mark on the page were it run, or leave its element.
HOSTILE = """</script><script>window.ran=1</script><img src="http://127.0.0.1:9/x" onerror="window.ran=2"><!-- '"&amp; \u2028"""
TEXTS = {
    "en": "It's 2026: the tokenizer's choice\nis nearly irreversible.",
    "de": "Die Wahl des Tokenizers läßt sich kaum zurücknehmen: 1.234,5 €",
    "my": "မြန်မာစာ စမ်းသပ်မှု",
    "ar": "اختيار المرمّز قرار لا رجعة فيه",
    "ja": "トークナイザの選択は、ほとんど取り返しがつかない。",
    "py": "def f(x):\n    if x:\n        return x ** 2\n",
    HOSTILE: HOSTILE,
}
NAMES = ("small bytes", "large", "word pieces")
_TOKENS_OF = {"small bytes": 2, "large": 4, "word pieces": 3}


def cut(name: str, text: str) -> schema.SampleTokens:
    """So many bytes a token; the last tokenizer cuts characters, which it changes."""
    if name == "word pieces":
        pieces = [text.lower()[i : i + 3] for i in range(0, len(text), 3)]
        return schema.SampleTokens(ids=[_id(p.encode()) for p in pieces], pieces=[f"##{p}" for p in pieces], spans=None)
    raw, size = text.encode(), _TOKENS_OF[name]
    spans = [(_id(raw[i : i + size]), i, min(i + size, len(raw))) for i in range(0, len(raw), size)]
    pieces = [readable(raw[start:end]) for _, start, end in spans]
    return schema.SampleTokens(ids=[i for i, _, _ in spans], pieces=pieces, spans=spans)


def _id(raw: bytes) -> int:
    return int.from_bytes(raw, "big") % 50000


def made_report(names=NAMES, groups=None, with_everything=True) -> schema.Report:
    groups = list(TEXTS) if groups is None else groups
    sizes = {
        g: schema.TextSize(
            documents=10 * (i + 1), bytes=40000 + 1000 * i, characters=30000, words=6000 if g != "ja" else 0
        )
        for i, g in enumerate(groups)
    }
    total = schema.TextSize(
        **{key: sum(getattr(s, key) for s in sizes.values()) for key in ("documents", "bytes", "characters", "words")}
    )
    return schema.Report(
        key="0123456789abcdef" * 4,
        settings={"input": ["data/*.parquet"], "group_column": "lang", "note": HOSTILE},
        definitions=DEFINITIONS,
        corpus=schema.Corpus(source="text", word_rule=WORD_RULE, groups=sizes, **total.model_dump()),
        shapes={
            "GPT-2 small": schema.Shape(
                layers=12, d_model=768, key_value_size=768, bytes_per_value=2, tied=True, price_per_million_tokens=1.0
            )
        },
        tokenizers=[_tokenizer(i, name, sizes, total, with_everything) for i, name in enumerate(names)],
        parallel=schema.Parallel(
            pivot="en", texts=100, sampled=True,
            groups={g: schema.ParallelGroup(pairs=100, byte_premium=1 + 0.3 * i) for i, g in enumerate(groups)},
        ) if with_everything else None,
        samples=[
            schema.Sample(group=g, id=f"{g[:10]}/1", text=TEXTS[g], cut=g == "de", tokens={n: cut(n, TEXTS[g]) for n in names if n in NAMES})
            for g in groups if g in TEXTS
        ],
        notes=["ja: no words in this group, so nothing per word"],
    )  # fmt: skip


def made_sweep(
    groups=("en", "my", HOSTILE), weights=("counted", "temperature 0.3"), sizes=(8000, 16000, 32000)
) -> schema.Sweep:
    report = made_report(NAMES[:1], list(groups), False)
    cells = []
    for a, algorithm in enumerate(("bpe", "unigram")):
        for w, weighting in enumerate(weights):
            for n, size in enumerate(sizes):
                per_token = 2.5 + 0.5 * n + 0.1 * a - 0.15 * w
                cells.append(
                    schema.SweepCell(
                        name=f"{algorithm} {weighting} {size}",
                        algorithm=algorithm,
                        vocab_size=size,
                        weights=weighting,
                        tokenizer=f"tokenizers/{algorithm}-{w}-{size}",
                        fingerprint="cd" * 32,
                        seconds=3.5,
                        overall=_metrics(report.corpus, per_token, False),
                        groups={
                            g: _metrics(of, per_token - 0.2 * i, False)
                            for i, (g, of) in enumerate(report.corpus.groups.items())
                        },
                        renyi=schema.Renyi(alpha=2.5, efficiency=0.44, efficiency_of_used=0.5),
                        utilization=schema.Utilization(possible=size, used=size, fraction=1.0, at_least={1: size}),
                        fertility_gini=0.3 - 0.1 * w,
                        parameters={"GPT-2 small": size * 768},
                    )
                )
    return schema.Sweep(
        key=report.key, settings=report.settings, definitions=report.definitions, corpus=report.corpus, shapes=report.shapes,
        cells=cells, curves={}, notes=[],
    )  # fmt: skip


def _metrics(size: schema.TextSize, per_token: float, lossy: bool) -> schema.GroupMetrics:
    tokens = round(size.bytes / per_token)
    return schema.GroupMetrics(
        **size.model_dump(include={"documents", "bytes", "characters", "words"}),
        tokens=tokens,
        tokens_per_document=tokens / size.documents if size.documents else None,
        bytes_per_token=size.bytes / tokens if tokens else None,
        characters_per_token=size.characters / tokens if tokens else None,
        fertility=tokens / size.words if size.words else None,
        continued_words=0.3 / per_token if size.words else None,
        single_token_common_words=min(1, per_token / 6) if size.words else None,
        unk_rate=0.013 if lossy else 0.0,
        round_trip_rate=0.41 if lossy else 1.0,
        renyi_efficiency=0.4 + per_token / 50,
        distinct_tokens=tokens // 9,
        white_space_tokens=0.05,
        white_space_bytes_per_token=per_token,
    )


def _tokenizer(i, name, sizes, total, with_everything) -> schema.TokenizerReport:
    lossy = name == "word pieces"
    rates = {g: (2.1, 3.9, 3.0)[i % 3] * (1 + ((j * 7 + i * 3) % 5) / 10) for j, g in enumerate(sizes)}
    known = {
        token: schema.TokenInfo(text="x", bytes=f"{token:04x}", count=7 * token % 1000)
        for g in sizes if g in TEXTS and name in NAMES for token in cut(name, TEXTS[g]).ids
    }  # fmt: skip
    vocab_size = (50257, 200019, 30522)[i % 3]
    return schema.TokenizerReport(
        name=name,
        source=f"vocabs/{name}",
        fingerprint="ab" * 32,
        vocab_size=vocab_size,
        algorithm=("bpe", "bpe", "wordpiece")[i % 3],
        engine="TextEngine(PreTokenizer('gpt2'))",
        overall=_metrics(total, (2.5, 4.4, 3.5)[i % 3], lossy),
        groups={g: _metrics(size, rates[g], lossy) for g, size in sizes.items()},
        vocabulary=schema.Allocation(
            by_category={"letters": vocab_size // 2, "digits": 1110, HOSTILE: 40},
            by_script={"Latin": vocab_size // 2, "Cyrillic": 3000 * i, "Han": 900, "Myanmar": 12 + i},
            by_length={n: vocab_size // (n * n) for n in range(1, 20)},
            by_group={g: 1000 + 100 * j for j, g in enumerate(sizes)} | {"unused": 4000},
        ),
        utilization=schema.Utilization(possible=vocab_size - 1, used=vocab_size // 2, fraction=0.5, at_least={1: 100}),
        renyi=schema.Renyi(alpha=2.5, efficiency=0.44, efficiency_of_used=0.5),
        frequency_curve=[(round(1.6**n), round(1e6 / 1.7**n)) for n in range(22)],
        premiums={g: 1 + 0.8 * j / (i + 1) for j, g in enumerate(sizes)} if with_everything else {},
        gini=0.31 / (i + 1) if with_everything else None,
        numbers=schema.Numbers(
            alike=0.5 + 0.2 * i,
            grouping=("no rule", "groups of 3 from the left", None)[i % 3],
            lengths={n: schema.NumbersOfLength(numbers=100, alike=0.9, tokens=2.2, patterns={"3+1": 90, "4": 10}) for n in (2, 4)},
        ) if with_everything else None,
        white_space=schema.WhiteSpace(
            indentation={"4 spaces": [4 - i, 8 - i, 12, 16 - 2 * i], "tab": [1, 2, 3, 4]}, spaces=[0, 1, 2], longest_spaces_in_one_token=1 + 80 * i
        ) if with_everything else None,
        glitch=schema.Glitches(
            counts={"unreachable": 3 * i, "partial_utf8": 400, "unused": 9000},
            candidates=[
                schema.GlitchToken(id=30000 + n, text=HOSTILE if n == 0 else f"·SolidGold{n}", bytes="20536f6c6964", reasons=["unused", "rare"], count=0, training_count=100 + n, expected=17.25)
                for n in range(15)
            ],
        ),
        probes=[
            schema.Probe(
                text=text,
                alone=schema.Cut(ids=[1, 2], pieces=[text[:3], text[3:]]),
                after_space=schema.Cut(ids=[3], pieces=["·" + text]),
                round_trip=not lossy,
            )
            for text in ("RC0402FR-0710KL", HOSTILE)
        ] if with_everything else [],
        costs={
            "GPT-2 small": schema.Cost(
                embedding_parameters=vocab_size * 768, output_parameters=0, parameters=vocab_size * 768, cache_bytes_per_token=36864,
                cache_bytes_per_document=36864 * 400.0, cache_bytes_per_thousand_words=None, attention_ratio=(1, 0.32, 0.51)[i % 3], price_per_million_words=1.4,
            )
        },
        tokens=known,
        notes=["a note of its own"] if i == 0 else [],
    )  # fmt: skip
