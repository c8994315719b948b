"""What ``benchmarks.preprocess`` runs beside the encode stage, each in a process of its own:

    python -m benchmarks.preprocess_rivals NAME CORPUS OUTPUT TOKENIZER_JSON EOS WORKERS

``loop``: as Megatron-style preprocess_data scripts are run: a pool of processes that parse and encode the lines of a JSON Lines
file one by one with Hugging Face tokenizers, and a parent that appends ids to .bin and lengths to .idx. ``gigatoken``: the same
loop with its encoder instead. ``gigatoken-batches``: the loop in batches of 1,000 lines, which it is faster with. ``datatrove``:
its ParquetReader and DocumentTokenizer without shuffling in its LocalPipelineExecutor. Prints seconds and a checksum of all ids.
"""

import hashlib
import json
import multiprocessing
import os
import struct
import sys
import time
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

_MAGIC = b"MMIDIDX\x00\x00"
_encode = None


def _start_hugging_face(path: str) -> None:
    global _encode
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(path)

    def encode(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False).ids

    _encode = encode


def _start_gigatoken(path: str) -> None:
    global _encode
    from gigatoken import Tokenizer

    tokenizer = Tokenizer(path)
    _encode = tokenizer.encode


def _start_gigatoken_batches(path: str) -> None:
    global _encode
    from gigatoken import Tokenizer

    tokenizer = Tokenizer(path)
    _encode = partial(tokenizer.encode_batch, parallel=False)


def _one(line: str):
    return _encode(json.loads(line)["text"])


def _many(lines: list[str]) -> list[np.ndarray]:
    return [np.asarray(ids, np.uint32) for ids in _encode([json.loads(line)["text"] for line in lines])]


def loop(name: str, corpus: Path, output: Path, tokenizer: str, eos: int, workers: int) -> None:
    """The ids of every document and ``eos`` behind them as int32 in .bin, the index in .idx."""
    starts = {"loop": _start_hugging_face, "gigatoken": _start_gigatoken, "gigatoken-batches": _start_gigatoken_batches}
    lengths = []
    with (
        multiprocessing.get_context("fork").Pool(workers, starts[name], (tokenizer,)) as pool,
        open(corpus / "corpus.jsonl", encoding="utf-8") as lines,
        open(output / "data.bin", "wb") as binary,
    ):
        if name == "gigatoken-batches":
            batches = iter(lambda: list(islice(lines, 1000)), [])
            found: Iterator = (ids for batch in pool.imap(_many, batches) for ids in batch)
        else:
            found = pool.imap(_one, lines, 32)
        for ids in found:
            document = np.append(np.asarray(ids, np.int32), np.int32(eos))
            binary.write(document.tobytes(order="C"))
            lengths.append(len(document))
    sizes = np.array(lengths, np.int32)
    with open(output / "data.idx", "wb") as index:
        index.write(_MAGIC + struct.pack("<QBQQ", 1, 4, len(sizes), len(sizes) + 1))
        pointers = np.zeros(len(sizes), np.int64)
        np.cumsum(sizes[:-1].astype(np.int64) * 4, out=pointers[1:])
        for part in (sizes, pointers, np.arange(len(sizes) + 1, dtype=np.int64)):
            index.write(part.tobytes(order="C"))


def datatrove(corpus: Path, output: Path, tokenizer: str, eos: str, workers: int) -> None:
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import ParquetReader
    from datatrove.pipeline.tokens import DocumentTokenizer

    LocalPipelineExecutor(
        [
            ParquetReader(str(corpus), glob_pattern="*.parquet"),
            DocumentTokenizer(str(output), tokenizer, eos_token=eos, shuffle_documents=False),
        ],
        tasks=len(list(corpus.glob("*.parquet"))),
        workers=workers,
        logging_dir=str(output / "logs"),
    ).run()


def ids_checksum(files: list[Path], dtype: str) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        digest.update(np.fromfile(file, dtype).astype("<u4").tobytes())
    return digest.hexdigest()


def main() -> None:
    name, corpus, output, tokenizer, eos, workers = sys.argv[1:]
    corpus, output = Path(corpus), Path(output)
    output.mkdir()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # processes are what there is to run in parallel
    began = time.perf_counter()
    if name == "datatrove":
        datatrove(corpus, output, tokenizer, eos, int(workers))
        files = sorted(output.glob("*.ds"))
    else:
        with open(tokenizer, encoding="utf-8") as file:
            added = {token["content"]: token["id"] for token in json.load(file)["added_tokens"]}
        loop(name, corpus, output, tokenizer, added[eos], int(workers))
        files = [output / "data.bin"]
    seconds = time.perf_counter() - began
    print(json.dumps({"seconds": seconds, "ids": ids_checksum(files, "<u4")}), file=sys.__stdout__)


if __name__ == "__main__":
    main()
