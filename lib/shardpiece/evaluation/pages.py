"""What the report and the playground have in common: templates, style sheets and scripts of the package, and the policy that
keeps a page to itself."""

import base64
import hashlib
import json
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

_WEB = files("shardpiece.evaluation") / "web"


@cache
def asset(name: str) -> str:
    """A style sheet or script of ``web/``."""
    return (_WEB / name).read_text(encoding="utf-8")


def environment(package: str) -> jinja2.Environment:
    """Templates of the package ``shardpiece.evaluation.PACKAGE``. Everything that a template puts in is escaped, and a name
    that is not there is an error."""
    return jinja2.Environment(
        loader=jinja2.PackageLoader(f"shardpiece.evaluation.{package}"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def script_json(value: Any) -> Markup:
    """``value`` for a ``<script type="application/json">``, which ends at ``</script`` wherever it stands and in which ``<!--``
    opens a comment: no ``<``, ``>`` or ``&`` is in it. NaN and infinities are errors."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    # What no UTF-8 file can hold.
    return Markup("".join(f"\\u{ord(c):04x}" if "\ud800" <= c <= "\udfff" else c for c in text))


def inline_script(name: str) -> Markup:
    """A script of ``web/`` for the inside of ``<script>``."""
    text = asset(name)
    if "</script" in text.lower() or "<!--" in text:
        raise ValueError(f"{name} cannot stand inside a script element")
    return Markup(text)


def inline_style(*names: str) -> Markup:
    """Style sheets of ``web/`` for the inside of ``<style>``."""
    return Markup("\n".join(asset(name) for name in names))


def content_security_policy(scripts: list[str]) -> str:
    """The policy of a page in one file: no request to anywhere, and no script but these, by the hash of their text. Styles
    may be inline, since the plots set theirs from script; an image is one that a plot was saved as."""
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        f"base-uri 'none'; form-action 'none'"
    )
