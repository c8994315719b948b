"""Options that several commands have, and how they become a configuration."""

import os
import sys
from contextlib import contextmanager
from typing import Any

import click

from shardpiece.config import JobConfig, load_config, parse_setting
from shardpiece.errors import ConfigError


@contextmanager
def readers_may_leave():
    """What follows `| head` is not an error: output that nobody reads is given up quietly."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains again at exit


# Flags that set a configuration key: name in the function → dotted key.
KEYS = {
    "inputs": "input",
    "input_format": "input_format",
    "where": "where",
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
    "tokenizer_pretokenizer": "encode.tokenizer_pretokenizer",
    "base_pretokenizer": "train.continue_pretokenizer",
    "shards_output": "encode.output",
    "shard_formats": "encode.format",
    "append_eos": "encode.append_eos",
    "special_tokens_in_text": "encode.special_tokens_in_text",
    "run_output": "output",
    "incremental": "encode.incremental",
    "dry_run": "dry_run",
    "tokenizers": "evaluate.tokenizers",
    "training_words": "evaluate.words",
    "evaluation_output": "evaluate.output",
    "parallel_column": "evaluate.parallel_column",
    "parallel_key": "evaluate.parallel_key",
    "pivot": "evaluate.pivot",
    "probes": "evaluate.probes",
    "sweep_words": "sweep.words",
    "sweep_output": "sweep.output",
    "sweep_sizes": "sweep.vocab_sizes",
    "sweep_algorithms": "sweep.algorithms",
    "sweep_weights": "sweep.weights",
}


def config(path: str | None, settings: tuple[str, ...], flags: dict[str, Any]) -> JobConfig:
    """The configuration file, --set over it, flags over both; flags that were not given say nothing."""
    overrides = dict(parse_setting(setting) for setting in settings)
    for name, value in flags.items():
        if value is not None and value != () and value is not False:
            if name in ("normalizers", "pretokenizers") and len(value) == 1:
                [value] = value
            overrides[KEYS[name]] = list(value) if isinstance(value, tuple) else value
    return load_config(path, overrides)


def common(command):
    for option in (
        click.option("--config", "config_path", metavar="FILE.yaml", help="Job configuration; flags win over it."),
        click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Any configuration key, as a.b=c."),
        click.option("--overwrite", is_flag=True, help="Replace an output that other settings made."),
    ):
        command = option(command)
    return command


def dry_run(command):
    return click.option("--dry-run", is_flag=True, help="Say what would be done: files, shards, disk; do nothing.")(
        command
    )


def spark(command):
    return click.option("--master", metavar="URL", help="Spark master; default from the configuration, else local[*].")(
        command
    )


def reading(command):
    for option in (
        click.argument("more_inputs", nargs=-1, metavar=""),
        click.option(
            "--input",
            "inputs",
            multiple=True,
            metavar="GLOB...",
            help="Parquet, JSON Lines, text or Arrow files, directories, globs; or table:NAME, sql:QUERY.",
        ),
        click.option(
            "--input-format", metavar="FORMAT", help="auto (by endings, default), parquet, jsonl, text, arrow."
        ),
        click.option("--where", metavar="CONDITION", help="Only these documents: \"lang = 'en' AND score > 0.5\"."),
        click.option("--text-column", metavar="NAME", help="Column with the text; default text."),
    ):
        command = option(command)
    return command


def engine(command):
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


def pretokenizer_of_file(name: str):
    """The option for tokenizer files that do not hold their pre-tokenizer."""
    return click.option(
        name,
        "tokenizer_pretokenizer" if name != "--pretokenizer" else "pretokenizer",
        metavar="NAME|REGEX",
        help="For tiktoken ranks that are no published vocabulary: the pre-tokenizer they are for.",
    )


TOKENIZER_HELP = "A tokenizer of any format, a file or a directory: made by shardpiece train, or published."


def special_tokens(settings: tuple[str, ...]) -> dict[str, int] | str | None:
    """TEXT=ID, several times, as ids by text; the name of one published vocabulary as it is."""
    if not settings:
        return None
    if len(settings) == 1 and "=" not in settings[0]:
        return settings[0]
    ids = {}
    for setting in settings:
        text, _, number = setting.rpartition("=")
        if not text or not number.isdigit():
            raise ConfigError(f"--special-token {setting!r}: expected TEXT=ID, such as '<|endoftext|>=50256'")
        ids[text] = int(number)
    return ids
