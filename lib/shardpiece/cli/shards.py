"""The commands about shards that are there: are they what they should be, what is in them, what may go."""

import json
import time

import click

from shardpiece.cli import options
from shardpiece.errors import ConfigError


@click.command()
@click.argument("shards_path", metavar="SHARDS")
@click.option("--tokenizer", "tokenizer_path", metavar="TOKENIZER", help=options.TOKENIZER_HELP)
@options.pretokenizer_of_file("--tokenizer-pretokenizer")
@click.argument("more_inputs", nargs=-1, metavar="")
@click.option(
    "--input", "inputs", multiple=True, metavar="GLOB...", help="Also compare with this input; needs --tokenizer."
)
@click.option("--workers", type=click.IntRange(min=1), metavar="N", help="Processes; default: as many as cores.")
def verify(shards_path, tokenizer_path, tokenizer_pretokenizer, more_inputs, inputs, workers):
    """Check shards: checksums and sizes, documents and tokens, ids, indexes and statistics against the manifest.

    With --input every document is encoded again and compared, nothing lost and nothing doubled. Prints what is wrong, a
    line each, and exits with 1 if anything is."""
    if (inputs or more_inputs) and not tokenizer_path:
        raise ConfigError("verify --input encodes the input again: pass --tokenizer too")
    import shardpiece
    from shardpiece.pipeline.verify import verify as check

    tokenizer = shardpiece.load(tokenizer_path, tokenizer_pretokenizer) if tokenizer_path else None
    began = time.monotonic()
    done = check(shards_path, tokenizer, [*inputs, *more_inputs], workers)
    for problem in done.problems:
        click.echo(problem)
    for line in done.notes:
        click.echo(line, err=True)
    outcome = f"{len(done.problems):,} problems" if done.problems else "all as it should be"
    compared = f"{done.compared:,} documents compared with the input"
    if (inputs or more_inputs) and done.compared < done.documents:
        compared = f"only {done.compared:,} of {done.documents:,} documents compared with the input"
        outcome += ", as far as it was looked at" if not done.problems else ""
    click.echo(
        f"{done.shards:,} shards, {done.documents:,} documents, {done.tokens:,} tokens: {outcome} "
        f"({compared}, {time.monotonic() - began:.1f} s)"
    )
    if done.problems:
        raise SystemExit(1)


@click.command()
@click.argument("directory", metavar="DIR")
@click.option("--dry-run", is_flag=True, help="Show what would be removed.")
@click.option("--unfinished", is_flag=True, help="Also what an unfinished run has done, which then begins anew.")
@click.option("--break-lock", is_flag=True, help="Also the lock of a run that is certainly gone.")
def clean(directory, dry_run, unfinished, break_lock):
    """Remove from an output directory what its manifest does not list: leftovers of killed runs, and their lock."""
    from shardpiece.pipeline.clean import clean as clean_directory

    done = clean_directory(directory, dry_run, unfinished, break_lock)
    verb = "would remove" if dry_run else "removed"
    with options.readers_may_leave():
        for name, size in done.removed.items():
            click.echo(f"{verb} {name} ({size:,} bytes)")
        if done.lock:
            click.echo(f"{verb} the lock of {done.lock}")
        for name in done.others:
            click.echo(f"left {name}: no run writes such a file")
        if done.unfinished:
            click.echo(
                f"left {done.unfinished:,} files of an unfinished run, which goes on from them (--unfinished: these too)"
            )
        click.echo(f"{verb} {len(done.removed):,} files, {sum(done.removed.values()):,} bytes")


@click.command()
@click.argument("shards_path", metavar="SHARDS")
@click.option("--tokenizer", "tokenizer_path", metavar="TOKENIZER", help="To show tokens as text.")
@options.pretokenizer_of_file("--tokenizer-pretokenizer")
@click.option(
    "--top", type=click.IntRange(min=0), default=20, show_default=True, metavar="N", help="Most frequent tokens."
)
@click.option("--json", "as_json", is_flag=True, help="Everything as one JSON object, all tokens included.")
def stats(shards_path, tokenizer_path, tokenizer_pretokenizer, top, as_json):
    """Show what is in shards: documents, tokens and bytes in all and per group, lengths, token frequencies."""
    import shardpiece
    from shardpiece.pipeline.shard_report import as_object, print_report, report_of

    tokenizer = shardpiece.load(tokenizer_path, tokenizer_pretokenizer) if tokenizer_path else None
    report = report_of(shards_path, tokenizer)
    with options.readers_may_leave():
        if as_json:
            click.echo(json.dumps(as_object(report), ensure_ascii=False))
        else:
            print_report(report, top)
