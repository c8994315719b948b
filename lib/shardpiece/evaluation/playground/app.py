"""The playground as a web application: one page, its files, and two calls that cut text. It keeps nothing, logs no text, and
answers to its own names alone, so that no page of another site can reach it through a name of its own (DNS rebinding)."""

import ipaddress
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import flask

from shardpiece import __version__
from shardpiece.errors import ShardpieceError, one_line
from shardpiece.evaluation.pages import asset, environment, script_json
from shardpiece.evaluation.playground.cutting import MAX_BYTES, SHOWN_TOKENS, Cutter
from shardpiece.text.special import IN_TEXT

# A byte of text is at most six in JSON (\u0000), and there is something around it.
MAX_REQUEST_BYTES = 6 * MAX_BYTES + 4096
TOO_LONG = f"The text has more than {MAX_BYTES:,} bytes, more than the playground takes: cut it shorter."
_FILES = {
    "base.css": "text/css", "tokens.css": "text/css", "playground.css": "text/css",
    "theme.js": "text/javascript", "tokens.js": "text/javascript", "playground.js": "text/javascript",
}  # fmt: skip
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def create_app(cutter: Cutter, host: str = "127.0.0.1", names: Iterable[str] = ()) -> flask.Flask:
    """``host``: the address that is listened at; requests to any other name but localhost and ``names`` are refused."""
    app = flask.Flask(__name__, static_folder=None, template_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = MAX_REQUEST_BYTES
    app.json.sort_keys = False
    allowed = {"localhost", host.lower(), *(name.lower() for name in names)}
    page = environment("playground").get_template("playground.html").render(
        tokenizers=cutter.describe(),
        version=__version__,
        settings=script_json(
            {"maxBytes": MAX_BYTES, "shownTokens": SHOWN_TOKENS, "tooLong": TOO_LONG, "tokenizers": cutter.describe()}
        ),
    )  # fmt: skip

    @app.before_request
    def only_own_names():
        if not host_allowed(flask.request.host, allowed, is_loopback(host)):
            return _problem(403, "This playground does not go by the name it was asked for (see --allow-host).")
        # Another site's page may send a request, though it cannot read the answer.
        site = flask.request.headers.get("Sec-Fetch-Site", "none")
        if flask.request.method == "POST" and site not in ("same-origin", "none"):
            return _problem(403, "Requests of other sites are refused.")
        return None

    @app.after_request
    def keep_to_itself(response):
        response.headers.update(_HEADERS)
        return response

    @app.get("/")
    def index():
        return flask.Response(page, mimetype="text/html")

    @app.get("/static/<name>")
    def static_file(name: str):
        if name not in _FILES:
            return _problem(404, "There is no such file.")
        return flask.Response(asset(name), mimetype=_FILES[name])

    @app.post("/api/cut")
    def cut():
        return flask.jsonify(cutter.cut(*_request()))

    @app.post("/api/json")
    def as_json():
        return flask.jsonify(cutter.as_json(*_request()[:2]))

    @app.errorhandler(ShardpieceError)
    def cannot_be_cut(error):
        return _problem(422, one_line(error))

    @app.errorhandler(413)
    def too_long(error):
        return _problem(413, TOO_LONG)

    @app.errorhandler(404)
    @app.errorhandler(405)
    @app.errorhandler(500)
    def other(error):
        return _problem(error.code, error.name)

    return app


def _request() -> tuple[str, str, int]:
    """(text, what special tokens in it are, how many tokens are shown), or the request ends with the reason."""
    body: Any = None
    with suppress(RecursionError):  # of brackets, thousands deep
        body = flask.request.get_json(silent=True) if flask.request.is_json else None
    if not isinstance(body, dict) or not isinstance(body.get("text"), str):
        flask.abort(_problem(400, 'Expected JSON: {"text": "..."}.'))
    in_text, shown = body.get("special_tokens_in_text", "text"), body.get("shown", SHOWN_TOKENS)
    if in_text not in IN_TEXT or in_text == "error":
        flask.abort(_problem(400, "special_tokens_in_text is text or token."))
    if type(shown) is not int or not 0 <= shown <= 20 * SHOWN_TOKENS:
        flask.abort(_problem(400, f"shown is a number up to {20 * SHOWN_TOKENS}."))
    # JSON can say half a surrogate pair, which UTF-8 cannot: the replacement character, as tokenizers have it.
    text = re.sub("[\ud800-\udfff]", "\ufffd", body["text"])
    if len(text.encode()) > MAX_BYTES:
        flask.abort(_problem(413, TOO_LONG))
    return text, in_text, shown


def _problem(code: int, text: str) -> flask.Response:
    response = flask.jsonify({"error": text})
    response.status_code = code
    return response


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def host_allowed(header: str, names: Iterable[str], loopback_only: bool) -> bool:
    """Whether a Host header is one of ``names``, or an address in numbers: a site that rebinds its name to this machine
    sends its name. ``loopback_only``: of the addresses those of this machine alone."""
    name = header.lower()
    if name.startswith("["):
        name = name[1:].partition("]")[0]
    elif name.count(":") == 1:
        name = name.partition(":")[0]
    if name in names:
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    return address.is_loopback or not loopback_only
