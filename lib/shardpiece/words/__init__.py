"""The word table: how often each word (pre-token) stands in a corpus, per group."""
