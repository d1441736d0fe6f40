"""The typed Python face of the Rust core."""

from headrace.native._native import version as __version__

__all__ = ["__version__"]
