"""The ``shardpiece`` command."""

import logging
import os
import sys
import warnings

import click

from shardpiece import __version__
from shardpiece.cli import convert, evaluate, inspect, playground, shards, stages
from shardpiece.errors import ShardpieceError, ShardpieceWarning, one_line


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


for command in (
    stages.count, stages.train, stages.encode, stages.run, shards.verify, shards.stats, shards.clean, evaluate.evaluate,
    evaluate.sweep, inspect.tokenize, inspect.decode, convert.convert, inspect.pretokenizers, inspect.normalizers,
    playground.playground, stages.demo, inspect.doctor,
):  # fmt: skip
    cli.add_command(command)
