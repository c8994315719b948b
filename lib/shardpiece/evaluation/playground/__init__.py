"""A page on this machine where text is typed and seen cut by tokenizers. Needs the extra ``playground`` (flask, waitress)."""
