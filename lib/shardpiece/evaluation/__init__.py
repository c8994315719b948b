"""Is a tokenizer any good? Metrics of tokenizers side by side, and what shows them."""
