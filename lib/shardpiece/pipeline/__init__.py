"""The Spark stages: the only package that imports pyspark."""
