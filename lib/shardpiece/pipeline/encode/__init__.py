"""The encode stage: ``plan`` says what will be done, ``stage`` does it, ``task`` is what executors do for one shard."""
