"""Tokenizer files: the artifact directory, Hugging Face tokenizer.json, tiktoken ranks."""
