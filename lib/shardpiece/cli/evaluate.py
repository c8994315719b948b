"""The commands that compare tokenizers."""

import click
import yaml

from shardpiece import storage
from shardpiece.cli import options
from shardpiece.config import JobConfig
from shardpiece.errors import ConfigError


@click.command()
@click.option(
    "--tokenizer",
    "tokenizers",
    multiple=True,
    metavar="[NAME=]TOKENIZER",
    help="Of any format, made by shardpiece train or published; several are compared, ratios are against the first.",
)
@options.reading
@click.option("--id-column", metavar="NAME", help="Document id, for the samples; default FILE:ROW.")
@click.option("--group-column", metavar="NAME", help="Language or source: figures are for each, and for all together.")
@click.option("--parallel-column", metavar="NAME", help="Ids that translations have in common, for premiums.")
@click.option(
    "--parallel-key",
    metavar="REGEX",
    help="What of that id they have in common: the first group of REGEX, or strip_last_part (of A:B:C A:B); default all.",
)
@click.option("--pivot", metavar="GROUP", help="What premiums are against; default English.")
@click.option(
    "--words",
    "training_words",
    metavar="WORDS",
    help="A word table: evaluated on instead of --input, or with --input the counts of the training.",
)
@click.option("--probe", "probes", multiple=True, metavar="TEXT", help="A term of your own to see cut.")
@click.option("--output", "evaluation_output", metavar="REPORT", help="Directory of metrics.json and the report.")
@options.spark
@options.common
def evaluate(config_path, settings, inputs, more_inputs, **flags):
    """Compare tokenizers on a corpus: compression, fairness, vocabulary, glitch tokens, costs."""
    config = options.config(config_path, settings, {"inputs": inputs + more_inputs, **flags})
    _no_dry_run(config)
    from shardpiece.pipeline import report, run

    done = run.run_evaluate(config)
    report.print_summary([done], {"report": storage.absolute(config.evaluation_path)})


@click.command()
@click.option("--words", "sweep_words", metavar="WORDS", help="Word table made by shardpiece count.")
@click.option(
    "--vocab-sizes", "sweep_sizes", metavar="N,N,..", help="Default 8k,16k,32k,64k; one training has them all."
)
@click.option("--algorithms", "sweep_algorithms", metavar="NAME,..", help="bpe (default), unigram, wordpiece, ...")
@click.option(
    "--weights",
    "sweep_weights",
    multiple=True,
    metavar="WEIGHTS",
    help="counted (default), a temperature such as 0.3, or {en: 3, de: 1}, with a name before it: even=0; once for each.",
)
@click.option("--output", "sweep_output", metavar="SWEEP", help="Directory of the tokenizers and of sweep.json.")
@click.option("--master", metavar="URL", help="For train.cut: {where: spark}; else no Spark is needed.")
@options.common
def sweep(config_path, settings, sweep_algorithms, sweep_weights, **flags):
    """Train a grid of tokenizers from one word table, and compare them on it."""
    algorithms = tuple(filter(None, (sweep_algorithms or "").split(",")))
    weights = dict(map(_weighting, sweep_weights)) or None
    config = options.config(config_path, settings, {"sweep_algorithms": algorithms, "sweep_weights": weights, **flags})
    _no_dry_run(config)
    from shardpiece.pipeline import report, run

    done = run.run_sweep(config)
    report.print_summary([done], {"sweep": storage.absolute(config.sweep_path)})


def _no_dry_run(config: JobConfig) -> None:
    if config.dry_run:
        raise ConfigError("dry_run is for count, encode and run: evaluate and sweep have no plan to show")


def _weighting(text: str) -> tuple[str, float | dict | None]:
    """NAME=WEIGHTS or WEIGHTS as (name, setting)."""
    name, equals, value = text.partition("=")
    if not equals or name.startswith("{"):
        name, value = text, text
    if value == "counted":
        return ("as counted" if name == value else name), None
    try:
        setting = yaml.safe_load(value)
    except yaml.YAMLError:
        setting = value
    if isinstance(setting, bool) or not isinstance(setting, int | float | dict):
        raise ConfigError(f"--weights {text!r}: expected counted, a number from 0 to 1, or {{GROUP: SHARE, ..}}")
    if isinstance(setting, dict) and name == text:
        name = ", ".join(f"{group} {share}" for group, share in setting.items())
    return (f"temperature {setting}" if name == text else name), setting
