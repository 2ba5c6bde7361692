"""One file of named arrays: how checkpoints, policies, classifiers and HostElla are saved.

A file is a safetensors file, which any tool for that format opens. Its metadata holds

    ella      a JSON table: kind, format_version and what the caller gives
    sha256    checksum of the table and of every array's name, dtype, shape and bytes

Files are replaced whole or not at all. Nothing is ever unpickled.
"""

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open

from ella.durable_files import replacing
from ella.errors import InputError

Tree = TypeVar("Tree")

_DTYPES = {
    "bool": "BOOL",
    "uint8": "U8",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
}
"""NumPy's names and those of safetensors."""


class DamagedFileError(Exception):
    """A file is truncated, altered or no array file; the message is the reason, one line."""


class MismatchedArraysError(Exception):
    """Arrays of other names, shapes or dtypes than expected; the message names the first."""


@dataclass(frozen=True)
class ArrayFile:
    """What a file holds."""

    arrays: dict[str, np.ndarray]
    table: dict[str, Any]
    """As given to `save_arrays`."""


def save_arrays(
    path: Path, arrays: Mapping[str, Any], *, kind: str, version: int, table: Mapping[str, Any]
) -> None:
    """Write an array file; if that fails, an earlier one stays.

    Args:
        arrays: By name; NumPy or JAX arrays, no random keys (`named_arrays` gives their numbers).
        kind: What the file is, for example "policy".
        version: Of the arrays' and the table's meaning.
        table: JSON values.
    """
    host = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    for name, array in host.items():
        if str(array.dtype) not in _DTYPES:
            raise TypeError(f"{name} has dtype {array.dtype}, which array files do not hold")
    # Large items first, so that every array is aligned.
    ordered = sorted(host, key=lambda name: (-host[name].itemsize, name))
    text = json.dumps({"kind": kind, "format_version": version, "table": dict(table)})
    metadata = {"ella": text, "sha256": _checksum(text, host)}
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name in ordered:
        begin, end = end, end + host[name].nbytes
        header[name] = {
            "dtype": _DTYPES[str(host[name].dtype)],
            "shape": host[name].shape,
            "data_offsets": [begin, end],
        }
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    # safetensors' own writer keeps two copies of the arrays and hides the disk's error number.
    with replacing(path) as file:
        file.write(struct.pack("<Q", len(encoded)) + encoded)
        for name in ordered:
            file.write(_bytes(host[name]))


def load_arrays(path: Path, *, kind: str, version: int) -> ArrayFile:
    """Read an array file whose checksum is right.

    Raises:
        DamagedFileError: The file is truncated, altered or no array file.
        InputError: It is whole, but of another kind or version.
        OSError: It cannot be read at all.
    """
    text, checksum, arrays = _read(path)
    if checksum != _checksum(text, arrays):
        raise DamagedFileError("its checksum is wrong")
    try:
        described = json.loads(text)
        found_kind, found_version = described["kind"], described["format_version"]
        table = dict(described["table"])
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedFileError("its table is not that of an array file") from error
    if found_kind != kind:
        raise InputError(f"{path} holds a {found_kind}, not a {kind}")
    if found_version != version:
        raise InputError(
            f"{path} has format version {found_version}, this version of ella reads {version}"
        )
    return ArrayFile(arrays, table)


def named_arrays(tree: Any) -> dict[str, Any]:
    """Every array of a PyTree (or shape of one) by its path, names joined by dots; random keys as
    their raw numbers. Leaves that are no arrays are left out."""
    found: dict[str, Any] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if not hasattr(leaf, "dtype"):
            continue
        name = _name(path)
        if name in found:
            raise ValueError(f"two arrays are named {name}")
        found[name] = _key_numbers(leaf) if _is_key(leaf) else leaf
    return found


def replace_arrays(tree: Tree, arrays: Mapping[str, np.ndarray]) -> Tree:
    """`tree` with its arrays taken from `arrays` (which lie on the host; random keys are rebuilt).

    Raises MismatchedArraysError unless names, shapes and dtypes are those of the tree.
    """
    expected = named_arrays(tree)
    for name, leaf in expected.items():
        if name not in arrays:
            raise MismatchedArraysError(f"{name} is missing")
        if (found := _described(arrays[name])) != _described(leaf):
            raise MismatchedArraysError(f"{name} is {found}, expected {_described(leaf)}")
    if unknown := sorted(arrays.keys() - expected.keys()):
        raise MismatchedArraysError(f"{unknown[0]} is unknown")

    def take(path: Any, leaf: Any) -> Any:
        if not hasattr(leaf, "dtype"):
            return leaf
        array = arrays[_name(path)]
        return jax.random.wrap_key_data(jnp.asarray(array)) if _is_key(leaf) else array

    return jax.tree_util.tree_map_with_path(take, tree)


def _read(path: Path) -> tuple[str, str | None, dict[str, np.ndarray]]:
    """(table as text, checksum, arrays) of a safetensors file."""
    path.open("rb").close()  # an OSError from here has its number, one of safetensors has not
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            # The names are a method's, the file not being a mapping.
            arrays = {name: file.get_tensor(name) for name in list(file.keys())}
    except (SafetensorError, ValueError, TypeError, KeyError, AttributeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DamagedFileError(f"no readable safetensors file: {reason}") from error
    if "ella" not in metadata:
        raise DamagedFileError("it is a safetensors file of another program")
    return metadata["ella"], metadata.get("sha256"), arrays


def _checksum(text: str, arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        digest.update(f"{name} {_described(arrays[name])} ".encode())
        digest.update(_bytes(arrays[name]))
    return digest.hexdigest()


def _bytes(array: np.ndarray) -> memoryview:
    """Of a contiguous array; bfloat16 has no buffer of its own."""
    return array.reshape(-1).view(np.uint8).data


def _described(array: Any) -> str:
    return f"{array.dtype}{list(array.shape)}"


def _is_key(leaf: Any) -> bool:
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _key_numbers(leaf: Any) -> Any:
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return jax.eval_shape(jax.random.key_data, leaf)
    return jax.random.key_data(leaf)


def _name(path: Any) -> str:
    parts = (
        str(getattr(entry, "name", getattr(entry, "key", getattr(entry, "idx", entry))))
        for entry in path
    )
    return ".".join(parts) or "value"
