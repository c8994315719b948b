"""When a stage's output is already there: done and unchanged, or in the way."""

from collections.abc import Callable
from dataclasses import dataclass

from shardpiece import storage
from shardpiece.errors import OutputError


@dataclass(frozen=True)
class OutputKind:
    """``what``: its name in messages; ``manifest``: the file that is written last and marks it finished;
    ``owned``: whether a file name in the directory is ours; ``read``: manifest of a directory; ``key``: the plan key
    in a manifest."""

    what: str
    manifest: str
    owned: Callable[[str], bool]
    read: Callable[[str], dict]
    key: Callable[[dict], str | None]

    def finished(self, directory: str, key: str, overwrite: bool) -> dict | None:
        """The manifest when this very output was made before, None when it has to be made.

        Raises OutputError when the directory holds something else, or the same kind made from other input or
        settings and ``overwrite`` is not set.
        """
        if not storage.exists(storage.join(directory, self.manifest)):
            strangers = [name for name in storage.list_names(directory) if not self._ours(name)]
            if strangers:
                raise OutputError(
                    f"{directory}: not empty and not {self.what} (it holds {strangers[0]}). Choose another --output."
                )
            return None
        manifest = self.read(directory)
        if self.key(manifest) == key:
            return manifest
        if not overwrite:
            raise OutputError(
                f"{directory}: holds {self.what} made from other input or settings. "
                f"Pass --overwrite to replace it, or choose another --output."
            )
        return None

    def clear(self, directory: str) -> None:
        """Remove an old output, manifest first, and what an interrupted run left; nothing that is not ours."""
        storage.remove(storage.join(directory, self.manifest))
        for name in storage.list_names(directory):
            if self._ours(name):
                storage.remove(storage.join(directory, name))

    def _ours(self, name: str) -> bool:
        return name == self.manifest or name.startswith(".shardpiece-") or self.owned(name)
