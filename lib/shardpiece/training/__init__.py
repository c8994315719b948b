"""Training: a word table in, a tokenizer out."""
