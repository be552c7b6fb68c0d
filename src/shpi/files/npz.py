"""Named arrays in one zip of npy files, like numpy's ``.npz``: no pickle, no zip bombs, stable bytes."""

from __future__ import annotations

import hashlib
import math
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from shpi.errors import ConfigError, DataError
from shpi.files.reading import open_regular, read_error

Arrays = dict[str, NDArray[Any]]

COMPRESSED = 256 * 2**20  # bytes: larger sets of arrays are stored uncompressed; limits unpacking
MOST_ENTRIES = 100_000  # limit on the arrays in a file
HEADER = 4096  # bytes that the npy header of an array may add to its contents
BLOCK = 2**20  # bytes unpacked at a time
_KINDS = "fiubU"  # dtype kinds that are written: numbers, flags and text


def write_npz(file: IO[bytes], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays in the order of their names."""
    for name, array in arrays.items():
        if array.dtype.kind not in _KINDS:
            raise ConfigError(
                expected="arrays of numbers, flags or text",
                found=f"dtype {array.dtype}",
                where=f"array '{name}'",
                remedy="convert it before saving",
            )
    small = sum(array.nbytes for array in arrays.values()) <= COMPRESSED
    method = zipfile.ZIP_DEFLATED if small else zipfile.ZIP_STORED
    with zipfile.ZipFile(file, "w", method) as archive:
        for name in sorted(arrays):
            entry = zipfile.ZipInfo(f"{name}.npy")  # dated 1980: the same bytes every time
            entry.compress_type = method
            with archive.open(entry, "w", force_zip64=True) as member:
                npy.write_array(member, np.asanyarray(arrays[name]), version=(1, 0), allow_pickle=False)


def read_npz(place: Path, most: int | None = None) -> Arrays:
    """All arrays of a file. A missing file is a FileNotFoundError for the caller to explain.

    Args:
        place: the file.
        most: limit on the total bytes of its arrays, if a manifest states it.
    """
    with open_regular(place) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                # Before unpacking: are the stated sizes possible, and does no name occur twice?
                entries, size = archive.infolist(), file.seek(0, 2)
                if len(entries) > MOST_ENTRIES or len({entry.filename for entry in entries}) < len(entries):
                    raise DataError(expected="", found="an archive with too many entries, or with one twice")
                stored = sum(
                    entry.file_size for entry in entries if entry.compress_type == zipfile.ZIP_STORED
                )
                packed = sum(entry.file_size for entry in entries) - stored
                if packed > max(COMPRESSED + 2**20, 20 * size) or stored > size:
                    found = f"an archive of {size:,} bytes that claims to hold {packed:,}"
                    raise DataError(expected="", found=found)
                if most is not None and packed + stored > most + HEADER * len(entries):
                    claim = f"an archive that claims to hold {packed + stored:,} bytes"
                    raise DataError(expected="", found=f"{claim} where the manifest says {most:,}")
                return {entry.filename.removesuffix(".npy"): _read(archive, entry) for entry in entries}
        except DataError as error:
            raise unreadable(error.found, place) from None
        except OSError as error:
            raise read_error(error, place) from None
        except (
            *(zipfile.BadZipFile, zlib.error, ValueError, EOFError, KeyError, NotImplementedError),
            *(RuntimeError, TypeError, SyntaxError, OverflowError, RecursionError, MemoryError),
        ) as error:
            raise unreadable(str(error)[:200] or type(error).__name__, place) from None


def unreadable(found: str, place: Path) -> DataError:
    """The error for arrays that are damaged or not what they claim to be."""
    return DataError(
        expected="readable arrays",
        found=found,
        where=str(place),
        remedy="the file is damaged: copy it again from where it was saved",
    )


def digest(arrays: Mapping[str, NDArray[Any]], start: bytes = b"") -> str:
    """sha256 of some bytes and of every array's name, type, shape and contents."""
    total = hashlib.sha256(start)
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        total.update(f"{name} {array.dtype.str} {array.shape}".encode())
        total.update(array.tobytes())
    return total.hexdigest()


def _read(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> NDArray[Any]:
    with archive.open(entry) as member:
        version = npy.read_magic(member)
        if version == (1, 0):
            shape, fortran, dtype = npy.read_array_header_1_0(member)
        elif version == (2, 0):
            shape, fortran, dtype = npy.read_array_header_2_0(member)
        else:
            raise DataError(expected="", found=f"npy version {version}")
        if any(not 0 <= length < 2**48 for length in shape) or len(shape) > 32:
            raise DataError(expected="", found=f"an array of shape {shape}")
        count = math.prod(shape)
        if dtype.kind not in _KINDS or dtype.hasobject:
            raise DataError(expected="", found=f"an array of {dtype}, which was not written by shpi")
        data = bytearray()  # by blocks, so that the array is in memory once
        while block := member.read(BLOCK):
            data += block
        if len(data) != count * dtype.itemsize:
            raise DataError(expected="", found=f"{len(data):,} bytes for the shape {shape} of {dtype}")
    array = np.frombuffer(data, dtype=dtype, count=count)
    return array.reshape(shape, order="F" if fortran else "C")
