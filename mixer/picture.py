"""A picture of rectangles and lines of text, as SVG or PNG: what a chart of mixtures needs and no more.

What holds: both files show the same picture, equal pictures give equal bytes, no plotting library is needed.
What was given up: letters beyond ASCII in PNG (a box stands for each), anti-aliasing, everything round.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]

# Dot letters of 5 columns x 8 rows from space to ~, a byte a column, its lowest bit on top.
_LETTERS = bytes.fromhex(
    "000000000000005F00000007000700147F147F14242A7F2A12231308646236495620500008070300001C2241000041221C00"
    "2A1C7F1C2A08083E080800807030000808080808000060600020100804023E5149453E00427F400072494949462141494D33"
    "1814127F1027454545393C4A49493141211109073649494936464949291E0000140000004034000000081422411414141414"
    "004122140802015909063E415D594E7C1211127C7F494949363E414141227F4141413E7F494949417F090909013E41415173"
    "7F0808087F00417F41002040413F017F081422417F404040407F021C027F7F0408107F3E4141413E7F090909063E4151215E"
    "7F09192946264949493203017F01033F4040403F1F2040201F3F4038403F631408146303047804036159494D43007F414141"
    "0204081020004141417F04020102044040404040000307080020545478407F284444383844444428384444287F3854545418"
    "00087E090218A4A49C787F0804047800447D40002040403D007F1028440000417F40007C047804787C080404783844444438"
    "FC1824241818242418FC7C08040408485454542404043F44243C4040207C1C2040201C3C4030403C44281028444C9090907C"
    "4464544C440008364100000077000000413608000201020402"
)
_BOX = bytes.fromhex("7F4141417F")
_COLUMNS, _ADVANCE, _ROWS = 5, 6, 8
ZOOM = 2  # pixels of the PNG a unit


@dataclass(frozen=True, kw_only=True, slots=True)
class Box:
    """A filled rectangle; colour as #rrggbb."""

    x: float
    y: float
    width: float
    height: float
    colour: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A line of text whose base line is at y, beginning or ending at x."""

    x: float
    y: float
    text: str
    anchor: Literal["start", "end"] = "start"
    size: int = 11


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
    """White, width x height units, boxes below lines."""

    width: int
    height: int
    boxes: Sequence[Box]
    lines: Sequence[Line]

    def svg(self) -> str:
        """The picture as an SVG document."""
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" '
            'font-family="sans-serif">',
            f'<rect width="{self.width}" height="{self.height}" fill="white"/>',
        ]
        for box in self.boxes:
            place = f'x="{box.x:g}" y="{box.y:g}" width="{box.width:.2f}" height="{box.height:g}"'
            parts.append(f'<rect {place} fill="{box.colour}"/>')
        for line in self.lines:
            place = f'x="{line.x:.2f}" y="{line.y:g}" font-size="{line.size}" text-anchor="{line.anchor}"'
            parts.append(f"<text {place}>{escape(line.text)}</text>")
        return "\n".join([*parts, "</svg>"]) + "\n"

    def png(self) -> bytes:
        """The picture as a PNG file."""
        canvas = np.full((self.height * ZOOM, self.width * ZOOM, 3), 255, dtype=np.uint8)
        for box in self.boxes:
            (left, right), (top, bottom) = _span(box.x, box.width), _span(box.y, box.height)
            canvas[top:bottom, left:right] = np.frombuffer(bytes.fromhex(box.colour[1:]), dtype=np.uint8)
        for line in self.lines:
            _write(canvas, line)
        return _encode(canvas)


def _span(begin: float, length: float) -> tuple[int, int]:
    return round(begin * ZOOM), round((begin + length) * ZOOM)


def _write(canvas: Pixels, line: Line) -> None:
    """Black dots of the letters; what would lie outside is cut."""
    dots = letters(line.text).repeat(ZOOM, axis=0).repeat(ZOOM, axis=1)
    left = round(line.x * ZOOM) - (dots.shape[1] if line.anchor == "end" else 0)
    top = round(line.y * ZOOM) - (_ROWS - 1) * ZOOM
    begin = max(0, -left)
    area = canvas[max(0, top) : top + len(dots), left + begin : left + dots.shape[1]]
    area[dots[max(0, -top) :, begin:][: area.shape[0], : area.shape[1]]] = 0


def letters(text: str) -> npt.NDArray[np.bool_]:
    """(8, 6 n) dots of n letters."""
    columns = b"".join(_letter(character) + bytes(_ADVANCE - _COLUMNS) for character in text)
    bits = np.unpackbits(np.frombuffer(columns, dtype=np.uint8)[None, :], axis=0, bitorder="little")
    return bits.astype(np.bool_)


def _letter(character: str) -> bytes:
    place = (ord(character) - 32) * _COLUMNS
    return _LETTERS[place : place + _COLUMNS] if 0 <= place < len(_LETTERS) else _BOX


def _encode(canvas: Pixels) -> bytes:
    """PNG (ISO/IEC 15948): 8 bits RGB, no filter."""
    height, width, _ = canvas.shape
    rows = np.concatenate([np.zeros((height, 1), dtype=np.uint8), canvas.reshape(height, -1)], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
