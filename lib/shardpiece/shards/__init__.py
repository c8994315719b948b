"""Token-ID shards: their plan, writers, readers and manifest."""
