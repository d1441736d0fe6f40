__all__ = [
    "version",
]

version: str
