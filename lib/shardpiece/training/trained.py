"""What a training gives: a tokenizer for each vocabulary size that was asked for."""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from shardpiece.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class Trained:
    """``tokenizers``: by the vocabulary size asked for, ascending; ``complete``: False when the training was stopped before
    its end; ``figures``: what to report, by name; ``transplant``: with continue_from, the old tokens of each new one;
    ``checkpoint``: of a training that was stopped, what it can go on from (see Monitor), where it can; ``frequencies``: what
    ``report.token_frequencies`` gives for the largest tokenizer, where the training knows it already."""

    tokenizers: dict[int, Tokenizer]
    complete: bool = True
    figures: dict[str, float] = field(default_factory=dict)
    transplant: pa.Table | None = None
    checkpoint: np.ndarray | None = None
    frequencies: np.ndarray | None = None

    @property
    def largest(self) -> Tokenizer:
        return self.tokenizers[max(self.tokenizers)]
