"""The commands that show something: how text is cut, what shards say, what there is."""

import itertools
import json
import sys

import click

from shardpiece.cli import options
from shardpiece.errors import ConfigError
from shardpiece.text.special import IN_TEXT


@click.command()
@click.option("--tokenizer", "tokenizer_path", metavar="TOKENIZER", help=options.TOKENIZER_HELP)
@options.pretokenizer_of_file("--tokenizer-pretokenizer")
@options.engine
@click.option("--json", "as_json", is_flag=True, help="One JSON object per text.")
@click.option("--special-tokens-in-text", type=click.Choice(IN_TEXT), help="As for encode; with --tokenizer only.")
@click.argument("text", required=False)
def tokenize(tokenizer_path, tokenizer_pretokenizer, pretokenizers, normalizers, as_json, special_tokens_in_text, text):
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
        tokenizer = shardpiece.load(tokenizer_path, tokenizer_pretokenizer)
    else:
        engine = shardpiece.TextEngine([*pretokenizers] or "cl100k_base", [*normalizers])
    if text is not None:
        texts = iter([text])
    else:
        lines = click.get_text_stream("stdin", encoding="utf-8", errors="surrogateescape")
        texts = (line.removesuffix("\n") for line in lines)
    with options.readers_may_leave():
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


@click.command()
def pretokenizers():
    """List the named pre-tokenizers with their patterns."""
    from shardpiece.text.pretokenizers import PRETOKENIZERS

    _list({name: [named.description, *named.patterns] for name, named in PRETOKENIZERS.items()})
    click.echo("\nAny regular expression is a pre-tokenizer too. Try one: shardpiece tokenize --pretokenizer NAME TEXT")


@click.command()
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
    with options.readers_may_leave():
        for name, lines in entries.items():
            for i, line in enumerate(filter(None, lines)):
                click.echo(f"{name if i == 0 else '':{width}}{line}")


@click.command()
@click.option("--shards", "shards_path", required=True, metavar="SHARDS", help="Directory made by shardpiece encode.")
@click.option("--tokenizer", "tokenizer_path", required=True, metavar="TOKENIZER", help=options.TOKENIZER_HELP)
@options.pretokenizer_of_file("--tokenizer-pretokenizer")
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="Stop after N documents.")
def decode(shards_path, tokenizer_path, tokenizer_pretokenizer, limit):
    """Turn shards back into text: one JSON object per document, on standard output."""
    import shardpiece
    from shardpiece.tokenizer.shard_decoding import decoded_documents

    tokenizer = shardpiece.load(tokenizer_path, tokenizer_pretokenizer)
    documents = itertools.islice(decoded_documents(shards_path, tokenizer), limit)
    with options.readers_may_leave():
        for name, count, raw in documents:
            row = {"id": name, "n_tokens": count, "text": raw.decode("utf-8", "replace")}
            click.echo(json.dumps(row, ensure_ascii=False))


@click.command()
@click.option("--path", "paths", multiple=True, metavar="PATH", help="Also check that this place is reachable.")
def doctor(paths):
    """Check Java, Spark, Python, the kernel cache and file systems, and say how to mend what is wrong."""
    from shardpiece.pipeline.doctor import examine

    if not examine(list(paths)):
        raise SystemExit(2)
