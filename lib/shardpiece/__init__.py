"""shardpiece trains subword tokenizers on sharded corpora with Spark and encodes corpora into token-ID shards.

The library half works without Spark:

    >>> import shardpiece
    >>> words = shardpiece.WordTable.from_texts(["low lower lowest"], "gpt2")
    >>> tokenizer = shardpiece.train_bpe(words, 262)
    >>> tokenizer.decode(tokenizer.encode("lowest"))
    'lowest'
"""

from shardpiece.errors import ShardpieceError
from shardpiece.text.engine import TextEngine
from shardpiece.text.pretokenizers import PreTokenizer
from shardpiece.tokenizer.artifact import save
from shardpiece.tokenizer.loading import load
from shardpiece.tokenizer.sampling import Sampling
from shardpiece.tokenizer.tokenizer import Tokenizer
from shardpiece.training.bpe import train_bpe
from shardpiece.training.trainers import train
from shardpiece.words.table import WordTable

__version__ = "0.1.0"
__all__ = [
    "PreTokenizer",
    "Sampling",
    "ShardpieceError",
    "TextEngine",
    "Tokenizer",
    "WordTable",
    "load",
    "save",
    "train",
    "train_bpe",
]
