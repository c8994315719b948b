"""Increments: what an output of the encode stage has already, and what of the input is new to it.

A manifest lists every input file that is in its shards. An incremental run plans the others alone, numbers its shards on,
and writes a manifest of both. Files are known by path, size and the hash of their metadata, as in every plan.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from shardpiece import storage
from shardpiece.corpus.base import InputPlan
from shardpiece.errors import FormatError, InputError, OutputError
from shardpiece.pipeline.outputs import STARTED, OutputKind
from shardpiece.pipeline.progress import log
from shardpiece.shards.plan import shard_number

_SHOWN = 3


@dataclass(frozen=True)
class Earlier:
    """What an output holds from earlier runs; ``manifest``: None before the first one has finished."""

    manifest: dict | None = None

    @property
    def key(self) -> str | None:
        return self.manifest["key"] if self.manifest else None

    @property
    def increments(self) -> list[dict]:
        return self.manifest["increments"] if self.manifest else []

    @property
    def statistics(self) -> list[dict]:
        return self.manifest["statistics"] if self.manifest else []

    @property
    def shards(self) -> list[dict]:
        return self.manifest["shards"] if self.manifest else []

    @property
    def ledger(self) -> list[dict]:
        return self.manifest["input"] if self.manifest else []

    @property
    def next_number(self) -> int:
        """Of the first shard that is new."""
        return max((shard_number(shard["name"]) + 1 for shard in self.shards), default=0)


def earlier(kind: OutputKind, directory: str, settings: dict, overwrite: bool) -> Earlier:
    """What the directory holds that an increment adds to; nothing with ``overwrite``.

    Raises OutputError naming the setting when other settings made, or began, what is there, and when a shard is lost.
    """
    if overwrite:
        return Earlier()
    names = storage.list_names(directory)
    if kind.manifest not in names:
        if STARTED in names:
            begun = storage.read_json(storage.join(directory, STARTED)).get("settings")
            _check_settings(directory, begun if isinstance(begun, dict) else {}, settings)
        return Earlier()
    try:
        manifest = kind.read(directory)
    except FormatError as error:
        raise OutputError(f"{error}. Pass --overwrite to replace it, or choose another --output.") from None
    _check_settings(directory, manifest["settings"], settings)
    sizes = storage.tree(directory)
    for shard in manifest["shards"]:
        for file in shard["files"]:
            if sizes.get(file["name"]) != file["bytes"]:
                raise OutputError(
                    f"{directory}: {file['name']} is missing or has another size than {kind.manifest} says, and an "
                    f"increment does not make it again. Restore it, or encode everything anew with --overwrite"
                )
    return Earlier(manifest)


def check_again(kind: OutputKind, directory: str, found: Earlier, settings: dict, overwrite: bool) -> None:
    """Raises OutputError when the directory no longer holds what was found there."""
    if earlier(kind, directory, settings, overwrite).key != found.key:
        raise OutputError(f"{directory}: another run has added to it just now; start this one again")


def unseen(found: Earlier, plan: InputPlan, changed_input: str) -> InputPlan:
    """The part of a plan that is in no shard yet.

    Raises InputError naming the files when input that is in the shards has changed or is gone, unless ``changed_input`` is
    "ignore": then the shards keep what was read.
    """
    known = {file["path"]: file for file in found.ledger}
    planned = {file.path: entry for file, entry in zip(plan.files, plan.ledger(), strict=True)}
    changed = [path for path, entry in planned.items() if path in known and known[path] != entry]
    # A pattern may leave out what was read before, such as last week's directories; that is not gone.
    gone = _gone([file for path, file in known.items() if path not in planned])
    for paths, what in ((changed, "changed since it was encoded"), (gone, "gone or has changed since it was encoded")):
        if not paths:
            continue
        shown = ", ".join(sorted(paths)[:_SHOWN]) + (
            f" and {len(paths) - _SHOWN:,} more" if len(paths) > _SHOWN else ""
        )
        if changed_input == "error":
            raise InputError(
                f"{shown}: {what}. Its documents are in the shards as they were: encode everything anew with --overwrite, "
                f"or set changed_input: ignore to keep them so"
            )
        log(f"encode: {shown}: {what}; ignored, the shards keep what was read")
    files = [file for file in plan.files if file.path not in known]
    paths = {file.path for file in files}
    return replace(plan, files=files, splits=[split for split in plan.splits if split.path in paths])


def _gone(files: list[dict]) -> list[str]:
    def is_gone(file: dict) -> bool:
        fs, inner = storage.filesystem(file["path"])
        try:
            return int(fs.info(inner)["size"] or 0) != file["size"]
        except FileNotFoundError:
            return True

    with ThreadPoolExecutor(16) as pool:
        return [file["path"] for file, gone in zip(files, pool.map(is_gone, files), strict=True) if gone]


def _check_settings(directory: str, before: dict, now: dict) -> None:
    differing = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
    if differing:
        told = "; ".join(f"{key}: {_said(before.get(key))} before, {_said(now.get(key))} now" for key in differing)
        raise OutputError(
            f"{directory}: was encoded with other settings ({told}), and an increment has those of its output. Encode "
            f"everything anew with --overwrite, or choose another --output"
        )


def _said(value) -> str:
    text = storage.canonical_json(value).decode()
    return text if len(text) <= 80 else f"{text[:77]}…"
