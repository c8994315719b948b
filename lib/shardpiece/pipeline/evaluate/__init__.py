"""The evaluate stage: ``stage`` runs it, ``task`` is what executors do, ``candidates`` are the tokenizers."""
