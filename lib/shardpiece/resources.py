"""Where the files of ``conf/`` are: inside the installed package, or beside ``lib/`` in a checkout."""

from pathlib import Path


def conf_file(name: str) -> Path | None:
    """The path of a file of ``conf/``, None when this installation has none."""
    package = Path(__file__).resolve().parent
    for directory in (package / "conf", package.parents[1] / "conf"):
        if (directory / name).is_file():
            return directory / name
    return None
