"""What the configuration says of order, validation and mixture."""

from collections.abc import Mapping

import numpy as np

from shardpiece.config import JobConfig
from shardpiece.corpus.mixture import Share, parse_mixture
from shardpiece.corpus.order import Placement, Validation
from shardpiece.encode_config import EncodeConfig
from shardpiece.errors import ConfigError
from shardpiece.pipeline.encode.mixture import Measured
from shardpiece.shards.statistics import GROUP_FIGURES


def placement_of(settings: EncodeConfig) -> Placement:
    """Without the mixture, which has to be measured first."""
    validation = None if settings.validation is None else Validation(**settings.validation.model_dump())
    return Placement(settings.seed, None, validation, settings.shuffle != "none")


def shares_of(config: JobConfig) -> dict[str, Share]:
    """The mixture; empty when there is none. Raises ConfigError for one that cannot be."""
    if config.encode.mixture is None:
        return {}
    if config.group_column is None:
        raise ConfigError("encode.mixture: goes by group_column, which is not set")
    if not config.encode.mixture:
        raise ConfigError("encode.mixture: names no group")
    shares = parse_mixture(config.encode.mixture)
    budgets = [name for name, share in shares.items() if share.tokens is not None]
    if budgets and config.encode.incremental:
        raise ConfigError(
            f"encode.mixture: {budgets[0]}: an incremental run sees new input alone, and would spend the budget of tokens "
            f"once more. Say epochs, or encode everything at once"
        )
    check_repeats(config, [name for name, share in shares.items() if share.repeats])
    return shares


def check_frame(config: JobConfig) -> None:
    """Raises ConfigError for a table or query as input of a run that needs the order of files."""
    name = config.input[0]
    if config.id_column is None:
        raise ConfigError(f"input {name!r}: rows of a table have no place to be named by. Set id_column")
    if config.encode.shuffle != "global":
        raise ConfigError(
            f"input {name!r}: Spark gives the rows of a table in no order that a second run could rely on. Set "
            f"encode.shuffle to global, which orders documents by their ids"
        )
    if config.encode.incremental:
        raise ConfigError(f"input {name!r}: an incremental run goes by files, and a table is encoded as a whole")


def check_repeats(config: JobConfig, groups: list[str]) -> None:
    """Raises ConfigError when documents of ``groups`` would stand beside their copies."""
    if groups and config.encode.shuffle == "none":
        raise ConfigError(
            f"encode.mixture: documents of {groups[0]!r} are taken more than once, and with shuffle: none the copies "
            f"would stand side by side. Set encode.shuffle to shard or global"
        )


def mixture_report(measured: Measured, taken: Mapping[str, np.ndarray]) -> dict:
    """For the manifest: by group, the epochs that are taken, what there is in the source (without validation documents; no
    tokens where they were not counted), and what was ``taken`` (documents, bytes, tokens; validation included)."""
    return {
        name: {
            "epochs": take.epochs,
            "source": measured.groups[name],
            "taken": dict(zip(GROUP_FIGURES, np.asarray(taken.get(name, (0, 0, 0))).tolist(), strict=True)),
        }
        for name, take in measured.takes.items()
    }
