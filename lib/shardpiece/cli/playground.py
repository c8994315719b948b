"""The command that opens the playground."""

import click

from shardpiece.cli import options


@click.command()
@click.option(
    "--tokenizer", "choices", multiple=True, required=True, metavar="[NAME=]TOKENIZER", help=options.TOKENIZER_HELP
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="0 takes any that is free."
)
@click.option(
    "--allow-host", "allow_hosts", multiple=True, metavar="NAME", help="Another name that the page may be asked for by."
)
def playground(choices, host, port, allow_hosts):
    """Serve a local page that shows text, as it is typed, cut by each TOKENIZER.

    It listens on this machine alone unless told otherwise, asks nothing of any other machine, and keeps no text."""
    from shardpiece.evaluation.playground.server import serve

    serve(choices, host, port, allow_hosts, lambda line: click.echo(f"shardpiece: {line}"))
