"""The files of one shard in one format: opened one by one, visible together."""

from shardpiece import storage
from shardpiece.shards.formats.base import ShardFile


class ShardFiles:
    """Files in ``directory`` that a format writes for a shard, listed in the order in which they were opened."""

    def __init__(self, directory: str, format_name: str):
        self._directory, self._format = directory, format_name
        self._files: dict[str, storage.StagedFile | storage.HeadedFile] = {}

    def open(self, name: str) -> storage.StagedFile:
        self._files[name] = file = storage.StagedFile(storage.join(self._directory, name))
        return file

    def open_headed(self, name: str) -> storage.HeadedFile:
        """A file to be given to ``seal_headed`` once its header is known."""
        self._files[name] = file = storage.HeadedFile(storage.join(self._directory, name))
        return file

    def seal_headed(self, name: str, header: bytes) -> int:
        """Put the header before what was written; the size of the file."""
        self._files[name] = file = self._files[name].seal(header)
        return file.size

    def commit(self) -> list[ShardFile]:
        """Make all files visible, once each of them is complete."""
        for file in self._files.values():
            file.seal()
        for file in self._files.values():
            file.commit()
        return [ShardFile(name, file.size, file.checksum, self._format) for name, file in self._files.items()]

    def discard(self) -> None:
        for file in self._files.values():
            file.discard()


def write_files(directory: str, format_name: str, contents: dict[str, bytes]) -> list[ShardFile]:
    """Write what stands beside the shards, each file whole or not at all."""
    files = []
    for name, content in contents.items():
        storage.write_bytes(storage.join(directory, name), content)
        files.append(ShardFile(name, len(content), storage.checksum_bytes(content), format_name))
    return files
