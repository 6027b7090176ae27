"""The smallest picture and the smallest sound that are valid, made here so that no binary file is kept."""

import io
import struct
import wave
import zlib
from typing import Final


def _png_chunk(kind: bytes, data: bytes) -> bytes:
    # PNG (third edition), section 5.3: length, type, data, CRC over type and data.
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _png() -> bytes:
    one_by_one_rgb = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    red_pixel = b"\x00\xff\x00\x00"  # the line's filter type, then R, G and B
    return (
        b"\x89PNG\r\n\x1a\n"
        + _png_chunk(b"IHDR", one_by_one_rgb)
        + _png_chunk(b"IDAT", zlib.compress(red_pixel))
        + _png_chunk(b"IEND", b"")
    )


def _wav() -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(1)
        sound.setframerate(8000)
        sound.writeframes(b"\x80" * 8)  # 1 ms of silence
    return file.getvalue()


PNG: Final = _png()
WAV: Final = _wav()
