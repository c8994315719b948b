"""Tallies as bytes: arrays as they lie in memory, all else in JSON. What one executor writes and another, or the driver, of
the same job reads; no file format."""

import io
import json

import numpy as np


def to_bytes(header: dict, arrays: dict[str, np.ndarray]) -> bytes:
    out = io.BytesIO()
    raw = np.frombuffer(json.dumps(header, ensure_ascii=False).encode("utf-8", "surrogatepass"), np.uint8)
    np.savez(out, header=raw, **arrays)
    return out.getvalue()


def from_bytes(raw: bytes) -> tuple[dict, dict[str, np.ndarray]]:
    with np.load(io.BytesIO(raw), allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files if name != "header"}
        return json.loads(stored["header"].tobytes().decode("utf-8", "surrogatepass")), arrays
