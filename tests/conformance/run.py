"""python -m tests.conformance.run [NAMES] [--corpus] [--codepoints] [--adversarial N] [--all]: compare with the references.

Without NAMES every vocabulary, without a section the quick ones. Exit status 1 when anything differs.
"""

import argparse
import itertools
import random
import sys
import time
import traceback
from pathlib import Path

from tests.conformance import files, texts
from tests.conformance.comparing import Comparison, Kept
from tests.conformance.references import REFERENCES, Reference, Tokenizers
from tests.conformance.texts import Adversary
from tests.conftest import SHARED

SECTIONS = ("vectors", "adversarial", "special", "codepoints", "corpus", "decode", "bytes", "files", "whole")


def adversary(comparison: Comparison) -> Adversary:
    peer = comparison.peer
    special = [*comparison.tokenizer.special_tokens]
    return Adversary(peer.pieces(), peer.added or [*special, *texts.MARKS], comparison.report.name)


def vectors(comparison: Comparison) -> None:
    """Every text by the reference, and where others expect ids for this vocabulary and the reference agrees, by them."""
    every = texts.vector_texts(SHARED)
    for mode in comparison.modes:
        comparison.ids("vectors", every, mode)


def adversarial(comparison: Comparison, count: int) -> None:
    comparison.ids("runs", texts.runs(), "text")
    for strings in adversary(comparison).strings(count):
        for mode in comparison.modes:
            comparison.ids("adversarial", strings, mode)


def codepoints(comparison: Comparison, every: int = 1) -> None:
    for batch in texts.code_points(texts.fewer_code_points() if every > 1 else None):
        comparison.ids("code points", batch, "text")


def corpus(comparison: Comparison, every: int = 1) -> None:
    for batch in itertools.islice(texts.corpus(SHARED), 0, None, every):
        comparison.ids("corpus", batch, "text")


def decode(comparison: Comparison, count: int) -> None:
    """Ids of texts, and ids at random; in parts; and encoded with what goes around a text."""
    peer = comparison.peer
    rng = random.Random(3)
    ids = [i for i in range(peer.size) if decodable(peer, i)]
    random_ids = [[rng.choice(ids) for _ in range(rng.randint(0, 12))] for _ in range(count)]
    strings = texts.sample(SHARED) + next(adversary(comparison).strings(count))
    encoded = peer.encode(strings, "token")
    batch = [encoded[i] for i in range(len(encoded))]
    comparison.decoding("decoded ids of texts", batch)
    comparison.decoding("decoded single ids", [[i] for i in ids])
    comparison.decoding("decoded random ids", random_ids)
    if isinstance(peer, Tokenizers):
        comparison.decoding("decoded without special tokens", [*batch[-1000:], *random_ids], skip=True)
    comparison.streaming("decoded as a stream", [ids for ids in batch[-1000:] if len(ids) < 500])
    comparison.templates("with a template", strings[-1000:])


def decodable(peer, i: int) -> bool:
    try:
        peer.decode([[i]])
    except Exception:  # an id that is no token, which each library refuses in its own way
        return False
    return True


def in_bytes(comparison: Comparison, count: int) -> None:
    """Nothing is lost by a byte-level model, whatever the bytes, but for the white space that added tokens take along."""
    stripping = any(token.lstrip or token.rstrip for token in comparison.tokenizer.added_tokens)
    strings = next(adversary(comparison).strings(count))
    for mode in ("text",) if stripping else comparison.modes:
        comparison.lossless("lossless", [*strings, *texts.fuzzed_bytes(count, 1), *texts.sample(SHARED)], mode)


def lossless_in_text(comparison: Comparison, reference: Reference) -> bool:
    """Whether nothing is lost, not even white space beside the added tokens that take it along."""
    return reference.lossless and not any(token.lstrip or token.rstrip for token in comparison.tokenizer.added_tokens)


def run(reference: Reference, sections: list[str], count: int, kept: Kept, show: int, every: int = 1) -> Comparison:
    comparison = Comparison(reference.name, reference.load(SHARED), reference.peer(SHARED), kept, show)
    for section in sections:
        started = time.monotonic()
        try:
            check(comparison, reference, section, count, every)
        except Exception:
            comparison.report.fails(section, traceback.format_exc(limit=-4))
        print(f"{reference.name} {section}: {time.monotonic() - started:.1f} s", file=sys.stderr, flush=True)
    return comparison


def check(comparison: Comparison, reference: Reference, section: str, count: int, every: int) -> None:
    match section:
        case "vectors":
            vectors(comparison)
        case "adversarial":
            adversarial(comparison, count)
        case "special":
            files.special_tokens(comparison, next(adversary(comparison).strings(min(count, 2000))))
        case "codepoints":
            codepoints(comparison, every)
        case "corpus":
            corpus(comparison, every)
        case "decode":
            decode(comparison, min(count, 5000))
        case "bytes" if reference.lossless:
            in_bytes(comparison, min(count, 5000))
        case "files":
            strings = texts.sample(SHARED) + next(adversary(comparison).strings(min(count, 2000)))
            files.round_trip(comparison, reference, strings)
        case "whole":
            batches = itertools.islice(texts.corpus(SHARED), 0, None, every)
            files.whole(comparison, lossless_in_text(comparison, reference), batches)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.run", description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(REFERENCES))
    for section in SECTIONS:
        if section != "adversarial":
            parser.add_argument(f"--{section}", action="store_true")
    parser.add_argument("--adversarial", type=int, metavar="N", default=0, help="so many generated strings")
    parser.add_argument("--all", action="store_true", help="every section, 100,000 generated strings")
    parser.add_argument("--cache", type=Path, help="directory to keep the references' results in")
    parser.add_argument("--report", type=Path, help="directory for one NAME.md per vocabulary")
    parser.add_argument(
        "--show", type=int, default=6, help="so many differences of a section, cut down to the shortest"
    )
    parser.add_argument("--every", type=int, default=1, metavar="K", help="one in K batches of corpora, few of the code points above U+1FFFF")  # fmt: skip
    args = parser.parse_args()
    chosen = [s for s in SECTIONS if args.all or getattr(args, s)] or ["vectors", "adversarial", "special", "decode", "bytes", "files"]  # fmt: skip
    count = args.adversarial or (100_000 if args.all else 3000)
    failed = 0
    for name in args.names or REFERENCES:
        try:
            report = run(REFERENCES[name], chosen, count, Kept(args.cache), args.show, args.every).report
            said, ok = str(report), report.ok
        except Exception:
            said, ok = f"## {name}\n**fails**\n{traceback.format_exc(limit=-4)}", False
        print(said, flush=True)
        failed += not ok
        if args.report:
            args.report.mkdir(parents=True, exist_ok=True)
            (args.report / f"{name}.md").write_text(said + "\n")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
