"""Text before the model sees it: documents out of Arrow columns, and pre-tokenization."""
