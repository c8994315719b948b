"""What normalizers are made of: settings, frozen tables, kernels, SentencePiece charsmaps."""
