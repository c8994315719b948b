"""What a job reads, as its configuration says: the selection, and the plan of the files."""

from shardpiece.config import JobConfig
from shardpiece.corpus.base import Columns, InputPlan, Sample, Selection
from shardpiece.corpus.sources import dataframe_of, list_files
from shardpiece.corpus.splits import plan_input
from shardpiece.errors import ConfigError
from shardpiece.pipeline.progress import log

_NAMED_AT_MOST = 10


def selection_of(config: JobConfig, columns: Columns) -> Selection:
    """``columns`` of the documents that the configuration lets through; ids too where the sample goes by them."""
    sample = None if config.sample is None else Sample(config.sample.fraction, config.sample.seed)
    if sample is not None and columns.id is None and config.id_column is not None:
        columns = Columns(columns.text, config.id_column, columns.group, columns.metadata)
    return Selection(columns, config.where, sample, config.text_documents, config.bad_rows)


def plan_job(config: JobConfig, columns: Columns, say: str = "") -> InputPlan:
    """The files and splits of a job's input. ``say``: the stage in whose name files that are left out are logged.

    Raises InputError as ``plan_input`` does, ConfigError for a table or query.
    """
    if name := dataframe_of(config.input):
        raise ConfigError(
            f"input {name!r} is read by Spark while a job runs, and this looks at files: give files instead"
        )
    plan = plan_input(list_files(config.input, config.input_format), selection_of(config, columns), config.bad_files)
    if plan.skipped and say:
        for file in plan.skipped[:_NAMED_AT_MOST]:
            log(f"{say}: left out: {file.path}: {file.problem}")
        if len(plan.skipped) > _NAMED_AT_MOST:
            log(f"{say}: {len(plan.skipped):,} files left out in all; the manifest lists them")
    return plan
