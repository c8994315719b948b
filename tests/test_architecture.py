"""The arrows point one way, and only pipeline/ knows Spark."""

import ast

from tests.conftest import ROOT

LIB = ROOT / "lib" / "shardpiece"
FLOORS = {
    "errors": 0, "kernel_cache": 0, "intrinsics": 0, "storage": 0, "object_store": 0, "resources": 0,
    "lock": 1, "train_config": 1, "encode_config": 1, "evaluation_config": 1, "config": 1, "text": 1, "corpus": 1, "shards": 1,
    "words": 2, "tokenizer": 2,
    "training": 3, "evaluation": 3,
    "pipeline": 4,
    "cli": 5,
}  # fmt: skip
# On one floor, what may use what.
SAME_FLOOR = {
    ("shards", "corpus"), ("shards", "lock"), ("storage", "errors"), ("storage", "object_store"), ("intrinsics", "kernel_cache"),
    ("config", "train_config"), ("config", "encode_config"), ("config", "evaluation_config"), ("evaluation_config", "train_config"), ("encode_config", "train_config"), ("encode_config", "shards"),
}  # fmt: skip


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_arrows_point_down():
    wrong = []
    for path in sorted(LIB.rglob("*.py")):
        room = path.relative_to(LIB).parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        for name in imports(path):
            parts = name.split(".")
            if parts[0] != "shardpiece" or len(parts) < 2 or parts[1] not in FLOORS:
                continue
            other = parts[1]
            if other != room and FLOORS[other] >= FLOORS[room] and (room, other) not in SAME_FLOOR:
                wrong.append(f"{path.relative_to(LIB)} imports {name}")
    assert wrong == []


def test_every_module_has_a_floor():
    rooms = {path.name.removesuffix(".py") for path in LIB.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert rooms - {"__init__", "__pycache__", "conf"} == set(FLOORS)


def test_only_the_pipeline_knows_spark():
    users = {
        path.relative_to(LIB).parts[0]
        for path in LIB.rglob("*.py")
        if any(name.split(".")[0] in ("pyspark", "py4j") for name in imports(path))
    }
    assert users == {"pipeline"}
