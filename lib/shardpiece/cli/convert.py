"""The command that writes a tokenizer in another format."""

import json

import click

from shardpiece.cli import options

FORMATS = ("huggingface", "tiktoken", "sentencepiece", "wordpiece", "gpt2", "tekken", "subword-nmt", "shardpiece")
_SHOWN = 20


@click.command()
@click.argument("source", metavar="SRC")
@click.argument("destination", metavar="DST")
@click.option("--to", required=True, type=click.Choice(FORMATS), help="The format to write.")
@click.option("--from", "format", metavar="FORMAT", help="That of SRC, where its content is that of several.")
@options.pretokenizer_of_file("--pretokenizer")
@click.option(
    "--special-token", "special_tokens", multiple=True, metavar="TEXT=ID", help="Of SRC, when it is a rank file."
)
@click.option(
    "--lowercase/--cased",
    default=None,
    help="Of SRC, when it is a vocab.txt; default by tokenizer_config.json or content.",
)
@click.option(
    "--approximate", is_flag=True, help="Write also what that format's library encodes otherwise now and then."
)
@click.option("--overwrite", is_flag=True, help="Replace what is at DST.")
def convert(source, destination, to, format, pretokenizer, special_tokens, lowercase, approximate, overwrite):
    """Write the tokenizer SRC, a file or directory in any format, as DST in another one.

    DST is the file when the format is one file and DST ends like it (.json, .tiktoken, .model, .codes), else the directory. What
    the format cannot express is refused with the reason. The result is read again and compared before it is put in its place."""
    import shardpiece
    from shardpiece.tokenizer import conversion

    tokenizer = shardpiece.load(
        source, pretokenizer, options.special_tokens(special_tokens), lowercase=lowercase, format=format
    )
    done = conversion.convert(tokenizer, destination, to, overwrite, source, approximate=approximate)
    if approximate and (reason := conversion.TARGETS[to].nearly(tokenizer)) is not None:
        click.echo(f"not exactly the same: {reason}")
    special = tokenizer.special_tokens
    for path in done.files:
        click.echo(f"wrote {path}")
    same = f"{done.texts - done.other:,} of {done.texts:,}" if done.other else f"{done.texts:,}"
    click.echo(f"{tokenizer.vocab_size:,} ids, {len(special):,} special tokens; read again, the same on {same} texts")
    holds = conversion.TARGETS[to].holds
    if to == "tiktoken":
        from shardpiece.tokenizer.formats.tiktoken import pat_str

        click.echo(f"not in this format: the pattern {pat_str(tokenizer)}")
    if "ids" not in holds:
        click.echo("not in this format: ids")
    if "special tokens" not in holds and special:
        shown = json.dumps(dict([*special.items()][:_SHOWN]), ensure_ascii=False)
        more = f" and {len(special) - _SHOWN:,} more" if len(special) > _SHOWN else ""
        click.echo(f"not in this format: the special tokens {shown}{more}")
