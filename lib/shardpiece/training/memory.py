"""What memory is there, and what the merge loop will need."""

import os
from pathlib import Path

BYTES_PER_SLOT = 22
BYTES_PER_TOKEN = 1200


def projected_bytes(slots: int, vocab_size: int) -> int:
    """Peak bytes of the merge loop for ``slots`` symbols and separators, the table itself not counted: the arrays of
    the slots, and records, heap and pair table, which grow with the number of merges. An upper estimate."""
    return slots * BYTES_PER_SLOT + vocab_size * BYTES_PER_TOKEN + (64 << 20)


def available_bytes() -> int:
    """Memory this process may still take: what the system has free, or what a control group (v1 or v2) leaves; cached
    files count as free."""
    limits = []
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                limits.append(int(line.split()[1]) * 1024)
    except OSError:
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for limit, usage, statistics, cached in (
        ("memory.max", "memory.current", "memory.stat", "inactive_file"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"),
    ):
        try:
            group = Path("/sys/fs/cgroup")
            most = int((group / limit).read_text())
            used = int((group / usage).read_text())
            files = dict(line.split() for line in (group / statistics).read_text().splitlines())
            limits.append(most - used + int(files.get(cached, 0)))
        except (OSError, ValueError):  # no such control group, or no limit ("max")
            continue
    return min(limits)
