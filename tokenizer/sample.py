"""Temperature sampling: a part of each language's training text, the smaller the larger the text is.

The part of a language is (its size / the smallest size) ^ (1 / temperature - 1), so sizes after sampling are as the
sizes before to the power of 1 / temperature, and no text is taken twice. Whether a document is taken depends on the
seed, the language and the document's number alone. Plain text files are one document each, so of them lines are taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from headrace.native import key, random_u64
from headrace.proto.errors import UsageError
from headrace.tokenizer.files import byte_lines, chunks, not_utf8
from headrace.tokenizer.texts import Text, documents, has_documents

_PURPOSE = "tokenizer training sample"


def shares(sizes: Mapping[str, int], temperature: float) -> dict[str, float]:
    """The part of each language's text to take, from the texts' bytes; 1 for the smallest that is not empty."""
    smallest = min((size for size in sizes.values() if size), default=1)
    return {name: min(1.0, (max(size, 1) / smallest) ** (1 / temperature - 1)) for name, size in sizes.items()}


def size_of(texts: Iterable[Text], field: str) -> int:
    """UTF-8 bytes of texts. They are read twice when a sample is taken, so an iterator is refused."""
    if isinstance(texts, Iterator):
        raise UsageError("temperature sampling reads texts twice; give a list of documents or files, not an iterator")
    return sum(_size(text, field) for text in texts)


def _size(text: Text, field: str) -> int:
    if isinstance(text, str):
        return len(text.encode(errors="surrogatepass"))
    if has_documents(text):
        return sum(len(document.encode(errors="surrogatepass")) for document in documents(text, field))
    return sum(map(len, chunks(text)))


def sampled(texts: Iterable[Text], field: str, *, share: float, seed: int, name: str) -> Iterator[str]:
    """The documents, or lines of plain files, of one language that are taken."""
    bound, stream = int(share * 2**64), key(seed, _PURPOSE, 0, name)
    units = (unit for text in texts for unit in _units(text, field))
    return (unit for number, unit in enumerate(units) if random_u64(stream, number) < bound)


def _units(text: Text, field: str) -> Iterator[str]:
    if isinstance(text, str):
        yield text
    elif has_documents(text):
        yield from documents(text, field)
    else:
        done = 0
        for line in byte_lines(text):
            try:
                yield line.decode()
            except UnicodeDecodeError as error:
                raise not_utf8(text, done + error.start) from None
            done += len(line)
