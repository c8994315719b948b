"""The sweep: a grid of tokenizers trained from one word table, and what they make of it.

A cell of the grid is an algorithm, a weighting of the groups and a vocabulary size; the sizes of one algorithm and weighting
share a training. Every tokenizer is an output of the train stage and every cell has a file with its figures, so that a
sweep that was stopped goes on where it was.
"""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

from pydantic import ValidationError

from shardpiece import storage
from shardpiece.config import JobConfig, load_config
from shardpiece.errors import ConfigError, FormatError, TrainingError, one_line
from shardpiece.evaluation import build, schema
from shardpiece.evaluation.cost import parameters
from shardpiece.evaluation.definitions import DEFINITIONS
from shardpiece.evaluation.metrics import gini
from shardpiece.evaluation.report import render_sweep
from shardpiece.pipeline import train
from shardpiece.pipeline.evaluate.candidates import shapes_of
from shardpiece.pipeline.evaluate.stage import measure_table, parquet_bytes
from shardpiece.pipeline.outputs import OutputKind
from shardpiece.pipeline.progress import log
from shardpiece.pipeline.report import StageReport
from shardpiece.pipeline.tasks import plan_key
from shardpiece.text.engine import TextEngine
from shardpiece.tokenizer.loading import load
from shardpiece.train_config import TrainConfig
from shardpiece.words import table as words

MANIFEST = "sweep.json"
TABLE = "sweep.parquet"
PAGE = "sweep.html"
TOKENIZERS = "tokenizers"
CELLS = "cells"
_OF_THE_GRID = {"words", "output", "vocab_size", "vocab_sizes", "algorithm", "weights", "temperature", "threads"}
_CURVES = ("bytes_per_token", "characters_per_token", "fertility", "renyi_efficiency")


def read_sweep(directory: str) -> dict:
    path = storage.join(directory, MANIFEST)
    if not storage.exists(path):
        raise FormatError(f"{directory}: no sweep here ({MANIFEST} is missing). Make one with: shardpiece sweep")
    return storage.read_manifest(path, schema.SWEEP_FORMAT, schema.VERSION, {"key": str, "cells": list, "files": list})


OUTPUT = OutputKind(
    what="a sweep",
    manifest=MANIFEST,
    names=rf"sweep\.parquet|sweep\.html|{CELLS}/[^/]+\.json",
    read=read_sweep,
    key=lambda sweep: sweep["key"],
    files=lambda sweep: sweep["files"],
)


def sweep(config: JobConfig, session: Callable) -> StageReport:
    """Train and compare the grid of ``config.sweep``; what is there already is not made again. ``session``: for
    ``train.cut: {where: spark}`` only. Raises ConfigError when no cell of the grid can be trained."""
    with ExitStack() as held:
        return _sweep(config, session, held)


def _sweep(config: JobConfig, session: Callable, held: ExitStack) -> StageReport:
    settings = config.sweep
    source = storage.absolute(settings.words or config.words_source)
    manifest = words.read_manifest(source)
    output = storage.absolute(config.sweep_path)
    grid = {
        "vocab_sizes": sorted(set(settings.vocab_sizes)), "algorithms": settings.algorithms, "weights": settings.weights,
        "train": _train_settings(config), "shapes": {name: shape.model_dump() for name, shape in shapes_of(config).items()},
    }  # fmt: skip
    key = plan_key(stage="sweep", version=schema.VERSION, words=manifest["fingerprint"], grid=grid)
    finished = OUTPUT.finished(output, key, config.overwrite)
    if finished is not None:
        log(f"sweep: {output} is done and unchanged, skipped")
        return _stage_report(schema.Sweep.model_validate(finished), 0.0, skipped=True)
    OUTPUT.check(output)
    lock = held.enter_context(OUTPUT.lock(output, lambda: OUTPUT.finished(output, key, config.overwrite)))
    OUTPUT.start(lock, key, resume=True)
    began = time.monotonic()
    cells: list[schema.SweepCell] = []
    corpus, notes = None, []
    for algorithm in dict.fromkeys(settings.algorithms):
        for name, weighting in settings.weights.items():
            lines = f"{algorithm}, {name}"
            try:
                job = _job(config, source, output, manifest, algorithm, name, weighting)
                seconds = time.monotonic()
                train.train(job, session)
                seconds = time.monotonic() - seconds
            except (ConfigError, TrainingError) as error:
                notes.append(f"Not trained: {lines}: {one_line(error)}")
                log(f"sweep: not trained: {lines}: {one_line(error)}")
                continue
            trained, corpus = _cells(job, config, source, manifest, output, algorithm, name, seconds)
            cells += trained
    if not cells:
        raise ConfigError(f"sweep: nothing of the grid can be trained: {'; '.join(notes)}")
    result = schema.Sweep(
        key=key,
        settings={"words": settings.words or config.words_source, **grid},
        definitions=DEFINITIONS,
        corpus=corpus,
        shapes=shapes_of(config),
        cells=cells,
        curves=curves(cells),
        notes=notes,
    )
    table = parquet_bytes(list(_rows(cells)), "cell")
    storage.write_bytes(storage.join(output, TABLE), table)
    page = render_sweep(result).encode()
    storage.write_bytes(storage.join(output, PAGE), page)
    described = [(TABLE, table), (PAGE, page)] + [
        (name, storage.read_bytes(storage.join(output, name)))
        for name in map(_cell_file, (cell.name for cell in cells))
    ]
    result.files = [
        schema.File(name=name, bytes=len(content), checksum=storage.checksum_bytes(content))
        for name, content in described
    ]
    OUTPUT.finish(lock, result.model_dump(mode="json"))
    return _stage_report(result, time.monotonic() - began)


def _train_settings(config: JobConfig) -> dict:
    """What the user has set for training, but for what the grid says: all that is not as the algorithm has it by default, as
    other algorithms have other defaults."""
    defaults = TrainConfig(algorithm=config.train.algorithm).model_dump(mode="json")
    given = config.train.model_dump(mode="json", exclude=_OF_THE_GRID)
    return {key: value for key, value in given.items() if value != defaults[key]}


def _style_of(manifest: dict, algorithm: str) -> str | None:
    """What the words of the table are for: words with ▁ for SentencePiece's algorithms."""
    engine = TextEngine.from_spec(manifest["engine"])
    metaspace = any(step.kind == "metaspace" for step in engine.pretokenizer.steps)
    return "sentencepiece" if algorithm == "bpe" and metaspace else None


def _job(
    config: JobConfig, source: str, output: str, manifest: dict, algorithm: str, name: str, weighting
) -> JobConfig:
    """The training of an algorithm and a weighting, with all sizes. The defaults of the algorithm apply where the
    configuration says nothing."""
    section = _train_settings(config)
    style = _style_of(manifest, algorithm)
    if style is not None:
        section.setdefault("style", style)
    if isinstance(weighting, dict):
        section["weights"] = weighting
    elif weighting is not None:
        section["temperature"] = weighting
    section |= {
        "algorithm": algorithm,
        "words": source,
        "vocab_sizes": sorted(set(config.sweep.vocab_sizes)),
        "output": storage.join(output, TOKENIZERS, f"{algorithm}, {name}".replace(", ", "-").replace(" ", "-")),
    }
    try:
        job = load_config(None, {f"train.{key}": value for key, value in section.items()})
    except ValidationError as error:
        raise ConfigError(one_line(error)) from None
    return job.model_copy(update={"overwrite": config.overwrite, "spark": config.spark, "master": config.master})


def _cell_name(algorithm: str, weights: str, size: int) -> str:
    return f"{algorithm}, {weights}, {size}"


def _cell_file(name: str) -> str:
    return storage.join(CELLS, re.sub(r"[ ,]+", "-", name) + ".json")


def _cells(
    job: JobConfig,
    config: JobConfig,
    source: str,
    manifest: dict,
    output: str,
    algorithm: str,
    weights: str,
    seconds: float,
) -> tuple[list[schema.SweepCell], schema.Corpus]:
    """The cells of a training, measured together where they were not before."""
    shapes = shapes_of(config)
    found: dict[int, tuple[schema.SweepCell, schema.Corpus]] = {}
    seen: set[str] = set()
    missing: list[tuple[int, str, build.Candidate]] = []
    for size, path in job.tokenizer_paths.items():
        name = _cell_name(algorithm, weights, size)
        tokenizer = load(path)
        if tokenizer.fingerprint in seen:
            continue  # algorithm byte has one vocabulary whatever the size
        seen.add(tokenizer.fingerprint)
        key = plan_key(
            stage="sweep cell", version=schema.VERSION, words=manifest["fingerprint"], tokenizer=tokenizer.fingerprint,
            name=name, shapes={shape: value.model_dump() for shape, value in shapes.items()},
        )  # fmt: skip
        known = _known_cell(storage.join(output, _cell_file(name)), key)
        if known is None:
            missing.append((size, key, build.Candidate(name, path, tokenizer)))
        else:
            found[size] = known
    if missing:
        candidates = [candidate for _, _, candidate in missing]
        text, tallies, candidates = measure_table(config, source, manifest, candidates)
        wanted = build.Wanted(shapes={}, samples=0, glitch_tokens=0)
        report = build.report("", "words", text, tallies, candidates, wanted)
        for (size, key, _), one in zip(missing, report.tokenizers, strict=True):
            own = [metrics.fertility for metrics in one.groups.values() if metrics.fertility is not None]
            cell = schema.SweepCell(
                name=one.name, algorithm=algorithm, vocab_size=one.vocab_size, weights=weights,
                tokenizer=one.source.removeprefix(output.rstrip("/") + "/"), fingerprint=one.fingerprint,
                seconds=round(seconds, 3), overall=one.overall, groups=one.groups, renyi=one.renyi,
                utilization=one.utilization, fertility_gini=gini(own),
                parameters={name: sum(parameters(one.vocab_size, shape)) for name, shape in shapes.items()},
            )  # fmt: skip
            found[size] = cell, report.corpus
            content = {
                "key": key,
                "cell": cell.model_dump(mode="json"),
                "corpus": report.corpus.model_dump(mode="json"),
            }
            storage.write_bytes(storage.join(output, _cell_file(one.name)), storage.pretty_json(content))
    cells = [found[size] for size in sorted(found)]
    return [cell for cell, _ in cells], cells[0][1]


def _known_cell(path: str, key: str) -> tuple[schema.SweepCell, schema.Corpus] | None:
    if not storage.exists(path):
        return None
    try:
        stored = storage.read_json(path)
        if stored["key"] == key:
            return schema.SweepCell.model_validate(stored["cell"]), schema.Corpus.model_validate(stored["corpus"])
    except (FormatError, ValidationError, KeyError, TypeError):
        pass
    return None


def curves(cells: list[schema.SweepCell]) -> dict[str, dict[str, list[tuple[int, float | None]]]]:
    """By metric, for every series (algorithm and weights) its (vocab_size, value) pairs; "fertility of GROUP" among them."""
    result: dict[str, dict[str, list[tuple[int, float | None]]]] = {}
    for cell in cells:
        values = {metric: getattr(cell.overall, metric) for metric in _CURVES}
        values |= {"utilization": cell.utilization.fraction, "fertility_gini": cell.fertility_gini}
        values |= {f"parameters of {shape}": float(n) for shape, n in cell.parameters.items()}
        values |= {f"fertility of {group}": metrics.fertility for group, metrics in cell.groups.items()}
        for metric, value in values.items():
            series = result.setdefault(metric, {}).setdefault(f"{cell.algorithm}, {cell.weights}", [])
            series.append((cell.vocab_size, value))
    return result


def _rows(cells: list[schema.SweepCell]) -> Iterator[tuple[str, str | None, str, float | None]]:
    for cell in cells:
        for group, metrics in (*cell.groups.items(), (None, cell.overall)):
            for metric, value in metrics.model_dump().items():
                yield cell.name, group, metric, value
        yield cell.name, None, "vocab_size", cell.vocab_size
        yield cell.name, None, "utilization", cell.utilization.fraction
        yield cell.name, None, "fertility_gini", cell.fertility_gini
        for shape, n in cell.parameters.items():
            yield cell.name, None, f"{shape}: parameters", n


def _stage_report(result: schema.Sweep, seconds: float, skipped: bool = False) -> StageReport:
    figures: dict[str, float] = {"cells": len(result.cells)}
    for cell in result.cells:
        if cell.overall.bytes_per_token is not None:
            figures[f"{cell.name}: bytes/token"] = cell.overall.bytes_per_token
    return StageReport("sweep", seconds, skipped, figures)
