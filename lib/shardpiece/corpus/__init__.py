"""What to read: Parquet files, their splits, and the documents in them."""
