"""Arrays of frameworks that are not installed, by the protocols that they speak."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import numpy as np

pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
capsule_of = ctypes.pythonapi.PyCapsule_New
capsule_of.restype, capsule_of.argtypes = (
    ctypes.py_object,
    [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p],
)

CUDA, GPU = 2, 99
"""DLPack's device type, and the index of a device that no machine has."""
"""DLPack's type of a CUDA device, and the one that the arrays here claim to be on."""
NO_MEMORY = 0x1000
"""An address that no process has: what reads it, ends the process."""


class OnlyDlpack:
    """An array that offers `__dlpack__` alone, as CuPy does."""

    def __init__(self, values: Any, *, versioned: bool = True) -> None:
        self.values = values
        self.versioned = versioned
        self.exports = 0

    def __dlpack__(self, **options: Any) -> Any:
        if not self.versioned and "max_version" in options:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        self.exports += 1
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[Any, Any]:
        device: tuple[Any, Any] = self.values.__dlpack_device__()
        return device


class OnGpu(OnlyDlpack):
    """Claims to be in a GPU's memory. With a stream it tells that it works on it, as CuPy does."""

    def __init__(self, values: Any, stream: int | None = None, *, versioned: bool = True) -> None:
        super().__init__(values, versioned=versioned)
        self.asked_for: list[Any] = []
        if stream is not None:
            self.__cuda_array_interface__ = {"version": 3, "stream": stream}

    def __dlpack__(self, stream: Any = None, **options: Any) -> Any:
        capsule = super().__dlpack__(**options)
        self.asked_for.append(stream)
        # DLTensor begins with data, device type and index. Before it a versioned one has version,
        # manager, deleter and flags.
        name, start = (b"dltensor_versioned", 32) if self.versioned else (b"dltensor", 0)
        head = struct.pack("Pii", NO_MEMORY, CUDA, GPU)
        ctypes.memmove(pointer_of(capsule, name) + start, head, len(head))
        return capsule

    def __dlpack_device__(self) -> tuple[Any, Any]:
        return CUDA, GPU


def _tensor_from_object(array: Any, out: int) -> int:
    values: Any = array.values
    shape = np.array(values.shape, np.int64)
    array.shape_of_view = shape
    fields = (NO_MEMORY, CUDA, GPU, values.ndim, 2, 32, 1, shape.ctypes.data, 0, 0)
    ctypes.memmove(out, struct.pack("PiiiBBHPPQ", *fields), 48)
    return 0


def _current_stream(_type: int, _index: int, out: int) -> int:
    ctypes.c_void_p.from_address(out).value = OfTorch.current_stream
    return 0


_FUNCTIONS = (
    ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(_tensor_from_object),
    ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_void_p)(_current_stream),
)
# DLPackExchangeAPI: version, older table, three functions that heddle does not use, and two that it
# does. The capsule keeps the address of its name.
_NAME = b"dlpack_exchange_api"
_API = ctypes.create_string_buffer(
    struct.pack(
        "IIPPPPPP",
        *(1, 3, 0, 0, 0, 0),
        *(ctypes.cast(f, ctypes.c_void_p).value for f in _FUNCTIONS),
    )
)


class OfTorch(OnGpu):
    """A matrix of f32 on a GPU that offers DLPack's C functions, too, as torch's tensors do."""

    current_stream = 0
    __dlpack_c_exchange_api__ = capsule_of(ctypes.addressof(_API), _NAME, None)
