"""The shard plan: which splits go into which shard. A pure function of the input listing and the shard size."""

from dataclasses import asdict, dataclass

from shardpiece.corpus.base import AnySplit
from shardpiece.corpus.splits import pack_splits


@dataclass(frozen=True)
class Shard:
    """One output shard: ``name`` without ending, and the consecutive splits it holds."""

    name: str
    splits: tuple[AnySplit, ...]

    @property
    def rows(self) -> int | None:
        """Rows of its splits; None when that is not known before they are read."""
        return None if any(split.rows < 0 for split in self.splits) else sum(split.rows for split in self.splits)

    @property
    def text_bytes(self) -> int:
        return sum(split.text_bytes for split in self.splits)

    def sources(self) -> list[dict]:
        """The splits as manifests list them."""
        return [asdict(split) for split in self.splits]


def plan_shards(splits: list[AnySplit], shard_bytes: int, first: int = 0) -> list[Shard]:
    """Consecutive splits in shards of about ``shard_bytes`` of text, numbered from ``first``; a larger split is a shard of
    its own."""
    groups = pack_splits(splits, shard_bytes)
    return [Shard(shard_name(first + i, first + len(groups)), tuple(group)) for i, group in enumerate(groups)]


def shard_name(number: int, shards: int) -> str:
    """The name of a shard of so many; ``number`` may be that of one more."""
    return f"shard-{number:0{max(5, len(str(shards)))}}"


def shard_number(name: str) -> int:
    return int(name.removeprefix("shard-"))


def plan_shuffled(text_bytes: int, shard_bytes: int, first: int = 0) -> list[Shard]:
    """The shards of a run with a global shuffle: as many as have about ``shard_bytes`` of text each, without splits."""
    n = -(-text_bytes // shard_bytes)
    return [Shard(shard_name(i, first + n), ()) for i in range(first, first + n)]
