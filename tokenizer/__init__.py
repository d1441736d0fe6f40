"""The parity-aware byte-level BPE: train, evaluate, encode.

`headrace.tokenizer.train.train`, `headrace.tokenizer.evaluate.evaluate` and `Tokenizer` are the way in.
"""

from headrace.tokenizer.tokenizer import Tokenizer

__all__ = ["Tokenizer"]
