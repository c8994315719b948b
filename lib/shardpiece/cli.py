"""The ``shardpiece`` command."""

import itertools
import json
import logging
import os
import sys
import warnings
from contextlib import contextmanager
from typing import Any

import click

from shardpiece import __version__, storage
from shardpiece.config import JobConfig, load_config, parse_setting
from shardpiece.errors import ConfigError, ShardpieceError, ShardpieceWarning, one_line
from shardpiece.text.special import IN_TEXT


def main(args: list[str] | None = None) -> None:
    """Entry point. Errors become one line on stderr and an exit code: 2 usage and configuration, 1 a failed job, 130
    interrupted. SHARDPIECE_DEBUG=1 shows where they come from."""
    debug = bool(os.environ.get("SHARDPIECE_DEBUG"))
    if not debug:
        # py4j reports to the root logger what reaches us as exceptions.
        logging.getLogger().addHandler(logging.NullHandler())
    warnings.showwarning = _show_warning
    try:
        code = cli.main(args, prog_name="shardpiece", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help())
        code = 2
    except click.ClickException as error:
        error.show()
        code = 2
    except (click.Abort, KeyboardInterrupt):
        click.echo(
            "shardpiece: interrupted; finished stages, and finished shards of encode, will not be done again", err=True
        )
        code = 130
    except Exception as error:
        if debug:
            raise
        code = error.exit_code if isinstance(error, ShardpieceError) else 1
        click.echo(f"shardpiece: error: {_one_line(error)}", err=True)
    sys.exit(code if isinstance(code, int) else 0)


@contextmanager
def _readers_may_leave():
    """What follows `| head` is not an error: output that nobody reads is given up quietly."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains again at exit


def _one_line(error: Exception) -> str:
    if isinstance(error, ShardpieceError):
        return " ".join(str(error).split())
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return f"unexpected {one_line(error)} (SHARDPIECE_DEBUG=1 shows where)"


def _show_warning(message, category, filename, lineno, file=None, line=None) -> None:
    if issubclass(category, ShardpieceWarning):
        click.echo(f"shardpiece: warning: {message}", err=True)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="shardpiece")
def cli() -> None:
    """Train subword tokenizers on sharded Parquet corpora with Spark, and encode corpora into token-ID shards."""


# Flags that set a configuration key: name in the function → dotted key.
_KEYS = {
    "inputs": "input",
    "text_column": "text_column",
    "id_column": "id_column",
    "group_column": "group_column",
    "normalizers": "normalizer",
    "pretokenizers": "pretokenizer",
    "master": "master",
    "overwrite": "overwrite",
    "words_output": "count.output",
    "words": "train.words",
    "algorithm": "train.algorithm",
    "style": "train.style",
    "vocab_sizes": "train.vocab_sizes",
    "continue_from": "train.continue_from",
    "temperature": "train.temperature",
    "resume": "resume",
    "vocab_size": "train.vocab_size",
    "min_frequency": "train.min_frequency",
    "tie_break": "train.tie_break",
    "alphabet_order": "train.alphabet_order",
    "max_token_length": "train.max_token_length",
    "special_tokens": "train.special_tokens",
    "tokenizer_output": "train.output",
    "tokenizer": "encode.tokenizer",
    "shards_output": "encode.output",
    "shard_format": "encode.format",
    "append_eos": "encode.append_eos",
    "special_tokens_in_text": "encode.special_tokens_in_text",
    "run_output": "output",
}


def _config(path: str | None, settings: tuple[str, ...], flags: dict[str, Any]) -> JobConfig:
    """The configuration file, --set over it, flags over both; flags that were not given say nothing."""
    overrides = dict(parse_setting(setting) for setting in settings)
    for name, value in flags.items():
        if value is not None and value != () and value is not False:
            if name in ("normalizers", "pretokenizers") and len(value) == 1:
                [value] = value
            overrides[_KEYS[name]] = list(value) if isinstance(value, tuple) else value
    return load_config(path, overrides)


def _common(command):
    for option in (
        click.option("--config", "config_path", metavar="FILE.yaml", help="Job configuration; flags win over it."),
        click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Any configuration key, as a.b=c."),
        click.option("--overwrite", is_flag=True, help="Replace an output that other settings made."),
    ):
        command = option(command)
    return command


def _spark(command):
    return click.option("--master", metavar="URL", help="Spark master; default from the configuration, else local[*].")(
        command
    )


def _reading(command):
    for option in (
        click.argument("more_inputs", nargs=-1, metavar=""),
        click.option("--input", "inputs", multiple=True, metavar="GLOB...", help="Parquet files, directories, globs."),
        click.option("--text-column", metavar="NAME", help="Column with the text; default text."),
    ):
        command = option(command)
    return command


def _engine(command):
    for option in (
        click.option(
            "--pretokenizer",
            "pretokenizers",
            multiple=True,
            metavar="NAME|REGEX",
            help="A name that shardpiece pretokenizers lists, or a regular expression; several are applied one after "
            "the other. Default cl100k_base, or that of the style.",
        ),
        click.option(
            "--normalizer",
            "normalizers",
            multiple=True,
            metavar="NAME",
            help="A name that shardpiece normalizers lists; several are applied one after the other. Default none, or that "
            "of the style.",
        ),
    ):
        command = option(command)
    return command


@cli.command()
@_reading
@click.option("--group-column", metavar="NAME", help="Language or source, kept apart in the word table.")
@_engine
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
@_spark
@_common
def count(config_path, settings, inputs, more_inputs, **flags):
    """Count the words (pre-tokens) of a corpus into a word table."""
    config = _config(config_path, settings, {"inputs": inputs + more_inputs, **flags})
    from shardpiece.pipeline import report, run

    done = run.run_count(config)
    report.print_summary([done], {"word table": storage.absolute(config.words_path)})


@cli.command()
@click.option("--words", metavar="WORDS", help="Word table made by shardpiece count.")
@click.option("--algorithm", metavar="NAME", help="bpe (default), wordpiece, unigram, word, character or byte.")
@click.option(
    "--style", metavar="NAME", help="What words are made of: byte-level, sentencepiece, end-of-word, continuing."
)
@click.option("--vocab-size", metavar="N", help="Tokens in all, special tokens included; 32k is 32,768.")
@click.option(
    "--vocab-sizes", metavar="N,N,..", help="Several from one training: 16k,32k,64k, each in a directory below OUTPUT."
)
@click.option("--continue-from", metavar="TOKENIZER", help="Learn further tokens on top of this one; its ids stay.")
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
@_common
def train(config_path, settings, **flags):
    """Train a tokenizer from a word table, on this machine."""
    config = _config(config_path, settings, flags)
    from shardpiece.pipeline import report, run

    done = run.run_train(config)
    report.print_summary([done], run.tokenizer_places(config))


@cli.command()
@_reading
@click.option("--id-column", metavar="NAME", help="Document id; default FILE:ROW.")
@click.option("--tokenizer", metavar="TOKENIZER", help="Directory made by shardpiece train.")
@click.option("--output", "shards_output", metavar="SHARDS", help="Directory of the shards.")
@click.option("--format", "shard_format", metavar="FORMAT", help="parquet (default) or bin.")
@click.option("--append-eos", is_flag=True, help="End every document with the end-of-text token.")
@click.option(
    "--special-tokens-in-text",
    metavar="POLICY",
    help="What a place is that spells a special token: text (default), token, or error.",
)
@_spark
@_common
def encode(config_path, settings, inputs, more_inputs, **flags):
    """Encode a corpus into token-ID shards."""
    config = _config(config_path, settings, {"inputs": inputs + more_inputs, **flags})
    from shardpiece.pipeline import report, run

    done = run.run_encode(config)
    report.print_summary([done], {"shards": storage.absolute(config.shards_path)})


@cli.command()
@click.argument("config_and_inputs", nargs=-1, required=True, metavar="CONFIG")
@click.option("--input", "inputs", multiple=True, metavar="GLOB...", help="Instead of the configuration's input.")
@click.option("--output", "run_output", metavar="DIR", help="Instead of the configuration's output.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Any configuration key, as a.b=c.")
@click.option("--overwrite", is_flag=True, help="Replace outputs that other settings made.")
@_spark
def run(config_and_inputs, settings, inputs, **flags):
    """Count, train and encode as CONFIG (a YAML file) says, skipping what is done and unchanged."""
    # A shell that expands --input data/*.parquet leaves all files but the first among the arguments.
    configs = [name for name in config_and_inputs if not name.endswith(".parquet")]
    if len(configs) != 1:
        raise ConfigError(f"run takes one configuration file, not {len(configs)}: {' '.join(configs)}")
    more = tuple(name for name in config_and_inputs if name.endswith(".parquet"))
    config = _config(configs[0], settings, {"inputs": inputs + more, **flags})
    from shardpiece.pipeline import report
    from shardpiece.pipeline import run as stages

    report.print_summary(stages.run_all(config), stages.places(config))


@cli.command()
@click.option("--tokenizer", "tokenizer_path", metavar="TOKENIZER", help="Directory made by shardpiece train.")
@_engine
@click.option("--json", "as_json", is_flag=True, help="One JSON object per text.")
@click.option("--special-tokens-in-text", type=click.Choice(IN_TEXT), help="As for encode; with --tokenizer only.")
@click.argument("text", required=False)
def tokenize(tokenizer_path, pretokenizers, normalizers, as_json, special_tokens_in_text, text):
    """Show how TEXT, or each line of standard input, is cut: by a tokenizer into pieces with their ids, or by a
    pre-tokenizer (with --pretokenizer, or neither option) into words."""
    import shardpiece
    from shardpiece.text.documents import Documents
    from shardpiece.tokenizer.pieces import show_pieces, show_words

    if tokenizer_path and (pretokenizers or normalizers):
        raise ConfigError("tokenize takes --tokenizer, or --pretokenizer and --normalizer, and not both")
    if special_tokens_in_text and not tokenizer_path:
        raise ConfigError("--special-tokens-in-text needs a --tokenizer, which knows the special tokens")
    if text is None and sys.stdin is None:
        raise ConfigError("tokenize needs a TEXT, or text on standard input, which is closed")
    if tokenizer_path:
        tokenizer = shardpiece.load(tokenizer_path)
    else:
        engine = shardpiece.TextEngine([*pretokenizers] or "cl100k_base", [*normalizers])
    if text is not None:
        texts = iter([text])
    else:
        lines = click.get_text_stream("stdin", encoding="utf-8", errors="surrogateescape")
        texts = (line.removesuffix("\n") for line in lines)
    with _readers_may_leave():
        for line in texts:
            line = line.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            if tokenizer_path:
                ids = tokenizer.encode(line, special_tokens_in_text or "text")
                shown = show_pieces(tokenizer, ids)
                pieces = [tokenizer.token_bytes(i).decode("utf-8", "backslashreplace") for i in ids]
                result = {"text": line, "pieces": pieces, "ids": ids}
            else:
                [words] = engine.split(Documents.from_strings([line])).to_list()
                shown = show_words(words)
                result = {"text": line, "words": [word.decode("utf-8", "backslashreplace") for word in words]}
            click.echo(json.dumps(result, ensure_ascii=False) if as_json else shown)


@cli.command()
def pretokenizers():
    """List the named pre-tokenizers with their patterns."""
    from shardpiece.text.pretokenizers import PRETOKENIZERS

    _list({name: [named.description, *named.patterns] for name, named in PRETOKENIZERS.items()})
    click.echo("\nAny regular expression is a pre-tokenizer too. Try one: shardpiece tokenize --pretokenizer NAME TEXT")


@cli.command()
def normalizers():
    """List the named normalizers."""
    from shardpiece.text.normalizers import NORMALIZERS

    _list({name: [description] for name, description in NORMALIZERS.items()})
    click.echo(
        "\nA configuration can also have steps with settings: prepend, replace, charsmap, sentencepiece; see the README."
    )
    click.echo("(*) not for count, train and run: tokenizer.json has no equal; see charsmap in the README.")
    click.echo("\nTry one: shardpiece tokenize --pretokenizer none --normalizer NAME TEXT")


def _list(entries: dict[str, list[str]]) -> None:
    width = max(map(len, entries)) + 2
    with _readers_may_leave():
        for name, lines in entries.items():
            for i, line in enumerate(filter(None, lines)):
                click.echo(f"{name if i == 0 else '':{width}}{line}")


@cli.command()
@click.option("--shards", "shards_path", required=True, metavar="SHARDS", help="Directory made by shardpiece encode.")
@click.option("--tokenizer", "tokenizer_path", required=True, metavar="TOKENIZER")
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="Stop after N documents.")
def decode(shards_path, tokenizer_path, limit):
    """Turn shards back into text: one JSON object per document, on standard output."""
    import shardpiece
    from shardpiece.tokenizer.shard_decoding import decoded_documents

    tokenizer = shardpiece.load(tokenizer_path)
    documents = itertools.islice(decoded_documents(shards_path, tokenizer), limit)
    with _readers_may_leave():
        for name, count, raw in documents:
            row = {"id": name, "n_tokens": count, "text": raw.decode("utf-8", "replace")}
            click.echo(json.dumps(row, ensure_ascii=False))


@cli.command()
@click.argument("more_inputs", nargs=-1, metavar="")
@click.option(
    "--input", "inputs", multiple=True, metavar="GLOB...", help="Your own Parquet instead of Python's sources."
)
@click.option("--text-column", metavar="NAME", help="Column with the text; default text.")
@click.option("--output", metavar="DIR", help="Default runs/demo, which every demo replaces.")
@click.option("--vocab-size", type=int, default=16_384, show_default=True, metavar="N")
@click.option("--overwrite", is_flag=True, help="Replace what another run left in --output.")
@_spark
def demo(inputs, more_inputs, text_column, output, vocab_size, overwrite, master):
    """Run the whole job on text that every machine has, check it, and show what came out."""
    from shardpiece.pipeline.demo import run_demo

    run_demo([*inputs, *more_inputs], text_column, output, vocab_size, overwrite, master)


@cli.command()
@click.option("--path", "paths", multiple=True, metavar="PATH", help="Also check that this place is reachable.")
def doctor(paths):
    """Check Java, Spark, Python, the kernel cache and file systems, and say how to mend what is wrong."""
    from shardpiece.pipeline.doctor import examine

    if not examine(list(paths)):
        raise SystemExit(2)


if __name__ == "__main__":
    main()
