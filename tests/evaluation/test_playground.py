"""The playground's calls, by the web library's own test client, and the command as a process."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request

import pytest

import shardpiece
from shardpiece.cli import main
from shardpiece.errors import DocumentError
from shardpiece.evaluation.playground.app import MAX_BYTES, MAX_REQUEST_BYTES, create_app, host_allowed
from shardpiece.evaluation.playground.cutting import Cutter
from shardpiece.evaluation.playground.server import named
from shardpiece.evaluation.segments import Shared, shared_characters, strip
from tests.commands import called
from tests.conftest import TEXTS

pytest.importorskip("flask")


@pytest.fixture(scope="module")
def tokenizers():
    words = shardpiece.WordTable.from_texts([text for text in TEXTS if text], "gpt2")
    return {
        "small": shardpiece.train_bpe(words, 270, special_tokens=["<|endoftext|>"]),
        "wordpiece": shardpiece.train(
            shardpiece.WordTable.from_texts(["low lower lowest café"], "bert"), "wordpiece", vocab_size=40
        ),
    }


@pytest.fixture(scope="module")
def cutter(tokenizers):
    return Cutter(tokenizers)


@pytest.fixture
def client(cutter):
    return create_app(cutter).test_client()


def cut(client, text, code=200, **settings):
    answer = client.post("/api/cut", json={"text": text, **settings})
    assert answer.status_code == code, answer.text
    return answer.get_json()


def test_figures_and_tokens_are_the_tokenizers(client, tokenizers):
    text = "low lowest 123\t€ 日本"
    answer = cut(client, text)
    assert (answer["bytes"], answer["characters"]) == (len(text.encode()), len(text))
    small, wordpiece = answer["results"]
    ids = tokenizers["small"].encode(text)
    pieces = small["strip"]["pieces"]
    assert [pieces[i][0] for i in small["strip"]["tokens"]] == ids
    assert b"".join(bytes.fromhex(pieces[i][1]) for i in small["strip"]["tokens"]) == text.encode()
    assert small["exact"]
    assert small["tokens"] == len(ids)
    assert small["distinct"] == len(set(ids))
    assert not wordpiece["exact"]
    assert [wordpiece["strip"]["pieces"][i][0] for i in wordpiece["strip"]["tokens"]] == tokenizers["wordpiece"].encode(
        text
    )


def test_special_tokens_are_tokens_on_request(client, tokenizers):
    special = tokenizers["small"].special_tokens["<|endoftext|>"]
    as_text = cut(client, "<|endoftext|>")["results"][0]
    as_token = cut(client, "<|endoftext|>", special_tokens_in_text="token")["results"][0]
    assert as_text["tokens"] > 1
    assert [piece[0] for piece in as_token["strip"]["pieces"]] == [special]


@pytest.mark.parametrize("text", ["", "\x00", "\ud800", "<script>alert(1)</script>", "\u202e\u200b", "🏳️‍🌈"])
def test_any_text_is_cut(client, text):
    assert cut(client, text)["results"][0]["exact"]


def test_long_texts_are_cut_and_longer_ones_refused(client):
    answer = cut(client, "a b" * (MAX_BYTES // 3))
    [result, _] = answer["results"]
    assert result["tokens"] > len(result["strip"]["tokens"]) == 2000
    assert "1,048,576 bytes" in cut(client, "é" * (MAX_BYTES // 2 + 1), 413)["error"]
    assert "1,048,576 bytes" in cut(client, "a" * (MAX_REQUEST_BYTES + 1), 413)["error"]
    assert cut(client, "\x00" * MAX_BYTES)["bytes"] == MAX_BYTES  # six bytes each in JSON


def test_copy_as_json_has_everything(client, tokenizers):
    text = "low " * 3000
    answer = client.post("/api/json", json={"text": text}).get_json()
    assert answer["text"] == text
    for of in answer["tokenizers"]:
        assert of["ids"] == tokenizers[of["name"]].encode(text)
        assert len(of["pieces"]) == of["tokens"] == len(of["ids"])
        assert of["fingerprint"] == tokenizers[of["name"]].fingerprint


@pytest.mark.parametrize(
    "body",
    [b"", b"text", b"[]", b'{"text": 1}', b'{"text": "a", "shown": "b"}', b'{"text": "a", "shown": 99999999}',
     b'{"text": "a", "special_tokens_in_text": "error"}'],
)  # fmt: skip
def test_other_requests_are_refused(client, body):
    answer = client.post("/api/cut", data=body, content_type="application/json")
    assert answer.status_code == 400
    assert answer.get_json()["error"]
    assert client.post("/api/cut", data='{"text": "a"}', content_type="text/plain").status_code == 400
    assert client.get("/api/cut").status_code == 405
    assert client.get("/static/..%2fapp.py").status_code == 404
    assert client.get("/static/plotly-basic.min.js").status_code == 404


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8765", "127.0.0.1.evil.example", "192.168.1.7", "[fe80::1]:80"]
)
def test_other_names_are_refused(client, host):
    for answer in (
        client.get("/", headers={"Host": host}),
        client.post("/api/cut", json={"text": "a"}, headers={"Host": host}),
    ):
        assert answer.status_code == 403
        assert "--allow-host" in answer.get_json()["error"]


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost", "LOCALHOST:1", "[::1]:8765", "127.0.0.2"])
def test_own_names_are_answered(client, host):
    assert client.get("/", headers={"Host": host}).status_code == 200


def test_names_of_a_server_for_others():
    names = {"box.example", "0.0.0.0"}
    assert host_allowed("192.168.1.7:8765", names, False)
    assert host_allowed("box.example:8765", names, False)
    assert not host_allowed("evil.example:8765", names, False)
    assert not host_allowed("192.168.1.7:8765", names, True)


def test_other_sites_are_refused(client):
    answer = client.post("/api/cut", json={"text": "a"}, headers={"Sec-Fetch-Site": "cross-site"})
    assert answer.status_code == 403
    assert "Access-Control-Allow-Origin" not in answer.headers


def test_what_cannot_be_cut_is_said(client, cutter, monkeypatch):
    def refuse(*_):
        raise DocumentError(0, "takes too long to cut")

    monkeypatch.setattr(cutter, "encode", refuse)
    assert "takes too long to cut" in cut(client, "a", 422)["error"]


def test_the_page_allows_nothing_else(client):
    page = client.get("/")
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert page.headers["Cache-Control"] == "no-store"
    assert not re.findall(r"https?://", page.text)
    assert not re.findall(r"<[^>]+\s(?:on\w+|style)\s*=", page.text)
    for name in re.findall(r'(?:src|href)="/(static/[^"]+)"', page.text):
        assert client.get(f"/{name}").status_code == 200


def test_a_name_is_escaped(tokenizers):
    name = "</script><script>alert(1)</script>"
    page = create_app(Cutter({name: tokenizers["small"]})).test_client().get("/").text
    assert "<script>alert" not in page
    settings = json.loads(re.search(r'id="settings">(.*?)</script>', page, re.DOTALL)[1])
    assert settings["tokenizers"][0]["name"] == name


def test_requests_at_once(cutter):
    """Encoders are for one thread at a time."""
    texts = [f"{text} {i}" for i in range(8) for text in TEXTS if text]
    expected = [cutter.cut(text) for text in texts]
    found = [None] * len(texts)

    def work(first):
        for i in range(first, len(texts), 4):
            found[i] = cutter.cut(texts[i])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == expected


def test_shared_characters():
    assert shared_characters([b"a", b" \xe2", b"\x82", b"\xacb"]) == [Shared(1, 3, "€")]
    assert shared_characters([b"\xe2\x82", b"\xac\xc3", b"\xa9"]) == [Shared(0, 1, "€"), Shared(1, 2, "é")]
    assert shared_characters([b"\xf0", b"", b"\x9f\x8f\xb3"]) == [Shared(0, 2, "🏳")]
    assert shared_characters([b"\x82", b"\xac", b"\xff", b"\x80", "é".encode()]) == []
    assert shared_characters([]) == []


def test_strip_says_each_token_once():
    assert strip([5, 7, 5], [b" a", b"\xff", b" a"]) == {
        "pieces": [[5, "2061", [["·", 1], ["a", 0]]], [7, "ff", [["<FF>", 1]]]],
        "tokens": [0, 1, 0],
        "shared": [],
    }


def test_names():
    assert named(["runs/a", "b/tokenizer.json"]) == {"a": "runs/a", "tokenizer.json": "b/tokenizer.json"}
    assert list(named(["x/a/tokenizer", "x/b/tokenizer/"])) == ["a/tokenizer", "b/tokenizer"]
    assert named(["ours=runs/a", "runs/b", "s3://x/a=b"]) == {"ours": "runs/a", "b": "runs/b", "a=b": "s3://x/a=b"}
    for choices in (["a", "a"], ["a=x", "y/a"], ["a=x", "a=y"]):
        with pytest.raises(shardpiece.ShardpieceError, match=r"twice|two tokenizers are named"):
            named(choices)


def test_mistakes_of_the_command(tmp_path):
    for arguments in (["--tokenizer", str(tmp_path / "none")], []):
        done = called(lambda arguments=arguments: main(["playground", *arguments]))
        assert done.returncode == 2
        assert done.stderr


@pytest.mark.slow
def test_the_command_serves_until_interrupted(tmp_path, tokenizers):
    pytest.importorskip("waitress")
    shardpiece.save(tokenizers["small"], str(tmp_path / "small"))
    process = subprocess.Popen(
        [sys.executable, "-m", "shardpiece.cli", "playground", "--tokenizer", str(tmp_path / "small"), "--port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        lines = iter(process.stdout.readline, "")
        address = next(found[1] for line in lines if (found := re.search(r"playground at (\S+)", line)))
        request = urllib.request.Request(
            f"{address}api/cut", json.dumps({"text": "low lower"}).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert json.load(answer)["results"][0]["tokens"] == len(tokenizers["small"].encode("low lower"))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert process.returncode in (0, 130), err
        assert "low" not in out + err
    finally:
        process.kill()
        process.wait()
