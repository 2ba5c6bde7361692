"""TensorBoard's event files, scalars only.

A file is a sequence of records: length, checksum of the length, an `Event` message in the wire
format of protocol buffers, checksum of the message. The field numbers are those of TensorFlow's
event.proto and summary.proto.
"""

import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

_FILE_VERSION = b"brain.Event:2"


class EventFile:
    """A new event file in a directory, made where it is missing. A record is written at once."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        now = time.time()
        name = f"events.out.tfevents.{now:.0f}.{socket.gethostname()}.{os.getpid()}"
        self._file = (directory / name).open("ab", buffering=0)
        self._add(_double(1, now) + _bytes(3, _FILE_VERSION))

    @property
    def path(self) -> Path:
        return Path(self._file.name)

    def add(self, scalars: Mapping[str, float], step: int) -> None:
        """Write the scalars of one step."""
        values = b"".join(
            _bytes(1, _bytes(1, tag.encode()) + _float(2, scalar))
            for tag, scalar in scalars.items()
        )
        self._add(_double(1, time.time()) + _varint(2 << 3) + _varint(step) + _bytes(5, values))

    def close(self) -> None:
        self._file.close()

    def _add(self, event: bytes) -> None:
        length = struct.pack("<Q", len(event))
        left = length + _masked_crc(length) + event + _masked_crc(event)
        while left:
            left = left[self._file.write(left) :]


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def _bytes(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _float(field: int, value: float) -> bytes:
    with np.errstate(over="ignore"):  # too large a number is infinity
        return _varint(field << 3 | 5) + np.array(value, "<f4").tobytes()


def _crc_row(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_CRC_TABLE = [_crc_row(byte) for byte in range(256)]
"""Of CRC-32C, Castagnoli's polynomial."""


def _masked_crc(content: bytes) -> bytes:
    crc = 0xFFFFFFFF
    for byte in content:
        crc = crc >> 8 ^ _CRC_TABLE[crc & 0xFF ^ byte]
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
