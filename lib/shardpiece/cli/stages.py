"""The commands that run stages of a job."""

import click

from shardpiece import storage
from shardpiece.cli import options
from shardpiece.corpus.sources import is_source
from shardpiece.errors import ConfigError


@click.command()
@options.reading
@click.option("--group-column", metavar="NAME", help="Language or source, kept apart in the word table.")
@options.engine
@click.option(
    "--style",
    metavar="NAME",
    help="What the words are for: byte-level (default), sentencepiece, end-of-word, continuing.",
)
@click.option(
    "--special-token",
    "special_tokens",
    multiple=True,
    metavar="TEXT",
    help="Left out where the text spells it; default: those of the style, <|endoftext|> without one.",
)
@click.option("--output", "words_output", metavar="WORDS", help="Directory of the word table.")
@options.dry_run
@options.spark
@options.common
def count(config_path, settings, inputs, more_inputs, **flags):
    """Count the words (pre-tokens) of a corpus into a word table."""
    config = options.config(config_path, settings, {"inputs": inputs + more_inputs, **flags})
    if config.dry_run:
        return _show_plan(config, "count")
    from shardpiece.pipeline import report, run

    done = run.run_count(config)
    report.print_summary([done], {"word table": storage.absolute(config.words_path)})


@click.command()
@click.option("--words", metavar="WORDS", help="Word table made by shardpiece count.")
@click.option("--algorithm", metavar="NAME", help="bpe (default), wordpiece, unigram, word, character or byte.")
@click.option(
    "--style", metavar="NAME", help="What words are made of: byte-level, sentencepiece, end-of-word, continuing."
)
@click.option("--vocab-size", metavar="N", help="Tokens in all, special tokens included; 32k is 32,768.")
@click.option(
    "--vocab-sizes", metavar="N,N,..", help="Several from one training: 16k,32k,64k, each in a directory below OUTPUT."
)
@click.option(
    "--continue-from",
    metavar="TOKENIZER",
    help="Learn further tokens on top of this one, of any format; its ids stay.",
)
@click.option(
    "--tokenizer-pretokenizer",
    "base_pretokenizer",
    metavar="NAME|REGEX",
    help="For --continue-from with tiktoken ranks that are no published vocabulary: the pre-tokenizer they are for.",
)
@click.option(
    "--temperature", type=float, metavar="A", help="Shares of the groups as n^A, n their bytes; default as counted."
)
@click.option("--min-frequency", type=int, metavar="N", help="Stop when the best pair is rarer; default 1.")
@click.option(
    "--tie-break", metavar="RULE", help="lexicographic (default), id, first_seen, lexicographic_last, sentencepiece."
)
@click.option("--alphabet-order", metavar="ORDER", help="Ids of the bytes: byte-level (default) or raw.")
@click.option("--max-token-length", type=int, metavar="N", help="Longest token, in bytes or characters.")
@click.option("--special-token", "special_tokens", multiple=True, metavar="TEXT", help="Default: those of the style.")
@click.option("--resume", is_flag=True, help="Go on from the checkpoint of a training that was stopped.")
@click.option("--output", "tokenizer_output", metavar="TOKENIZER", help="Directory of the tokenizer.")
@click.option("--master", metavar="URL", help="For train.cut: {where: spark}; else training needs no Spark.")
@options.common
def train(config_path, settings, **flags):
    """Train a tokenizer from a word table, on this machine."""
    config = options.config(config_path, settings, flags)
    if config.dry_run:
        return _show_plan(config, "train")
    from shardpiece.pipeline import report, run

    done = run.run_train(config)
    report.print_summary([done], run.tokenizer_places(config))


@click.command()
@options.reading
@click.option("--id-column", metavar="NAME", help="Document id; default FILE:ROW.")
@click.option("--group-column", metavar="NAME", help="Language or source, for statistics and mixtures.")
@click.option("--tokenizer", metavar="TOKENIZER", help=options.TOKENIZER_HELP)
@options.pretokenizer_of_file("--tokenizer-pretokenizer")
@click.option("--output", "shards_output", metavar="SHARDS", help="Directory of the shards.")
@click.option(
    "--format",
    "shard_formats",
    multiple=True,
    metavar="FORMAT",
    help="parquet (default), arrow, bin, llm.c, npy, megatron, datatrove, dolma, mds or litdata; several in one pass, each in a "
    "directory of its name.",
)
@click.option("--append-eos", is_flag=True, help="End every document with the end-of-text token; default: no.")
@click.option(
    "--special-tokens-in-text",
    metavar="POLICY",
    help="What a place is that spells a special token: text (default), token, or error.",
)
@click.option("--incremental", is_flag=True, help="Add to the shards that are there what of the input is new.")
@options.dry_run
@options.spark
@options.common
def encode(config_path, settings, inputs, more_inputs, **flags):
    """Encode a corpus into token-ID shards."""
    config = options.config(config_path, settings, {"inputs": inputs + more_inputs, **flags})
    if config.dry_run:
        return _show_plan(config, "encode")
    from shardpiece.pipeline import report, run

    done = run.run_encode(config)
    report.print_summary([done], {"shards": storage.absolute(config.shards_path)})


@click.command()
@click.argument("config_and_inputs", nargs=-1, required=True, metavar="CONFIG")
@click.option("--input", "inputs", multiple=True, metavar="GLOB...", help="Instead of the configuration's input.")
@click.option("--output", "run_output", metavar="DIR", help="Instead of the configuration's output.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Any configuration key, as a.b=c.")
@click.option("--overwrite", is_flag=True, help="Replace outputs that other settings made.")
@options.dry_run
@options.spark
def run(config_and_inputs, settings, inputs, **flags):
    """Count, train and encode as CONFIG (a YAML file) says, skipping what is done and unchanged."""
    # A shell that expands --input data/*.parquet leaves all files but the first among the arguments.
    configs = [name for name in config_and_inputs if not is_source(name)]
    if len(configs) != 1:
        raise ConfigError(f"run takes one configuration file, not {len(configs)}: {' '.join(configs)}")
    more = tuple(name for name in config_and_inputs if is_source(name))
    config = options.config(configs[0], settings, {"inputs": inputs + more, **flags})
    if config.dry_run:
        return _show_plan(config, "count", "train", "encode")
    from shardpiece.pipeline import report
    from shardpiece.pipeline import run as stages

    report.print_summary(stages.run_all(config), stages.places(config))


def _show_plan(config, *stages: str) -> None:
    from shardpiece.pipeline.dry_run import show

    for line in show(config, stages):
        click.echo(line)


@click.command()
@click.argument("more_inputs", nargs=-1, metavar="")
@click.option(
    "--input", "inputs", multiple=True, metavar="GLOB...", help="Your own Parquet instead of Python's sources."
)
@click.option("--text-column", metavar="NAME", help="Column with the text; default text.")
@click.option("--output", metavar="DIR", help="Default runs/demo, which every demo replaces.")
@click.option("--vocab-size", type=int, default=16_384, show_default=True, metavar="N")
@click.option("--overwrite", is_flag=True, help="Replace what another run left in --output.")
@options.spark
def demo(inputs, more_inputs, text_column, output, vocab_size, overwrite, master):
    """Run the whole job on text that every machine has, check it, and show what came out."""
    from shardpiece.pipeline.demo import run_demo

    run_demo([*inputs, *more_inputs], text_column, output, vocab_size, overwrite, master)
