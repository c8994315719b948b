"""Tokenizers: pre-tokenizer, model, special tokens; encoding and decoding; file formats."""
