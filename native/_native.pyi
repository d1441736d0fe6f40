__all__: list[str]
version: str
