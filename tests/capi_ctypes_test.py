#!/usr/bin/env python3
"""The C interface from another language: NumPy arrays through ctypes, against NumPy's results.

tests/capi_ctypes_test.py LIBHEDDLE_C    exits with 77, for CTest "skipped", without NumPy
"""

import ctypes
import os
import secrets
import sys
import unittest

try:
    import numpy as np
except ImportError:
    print("NumPy is missing: skipped")
    sys.exit(77)

SEED = int(os.environ.get("HEDDLE_TEST_SEED") or secrets.randbits(32))
INVALID_ARGUMENT, UNSUPPORTED = 1, 2
RANK_MAJOR, RANK_MINOR = 0, 1


class DLDevice(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int), ("device_id", ctypes.c_int32)]


class DLDataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", DLDevice),
        ("ndim", ctypes.c_int32),
        ("dtype", DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class ContextOptions(ctypes.Structure):
    _fields_ = [
        ("device", DLDevice),
        ("stream", ctypes.c_void_p),
        ("workspace_bytes", ctypes.c_size_t),
        ("num_threads", ctypes.c_int32),
    ]


class LoraBatch(ctypes.Structure):
    _fields_ = [
        (name, ctypes.POINTER(DLTensor))
        for name in (
            "slot_ids",
            "seg_starts",
            "seg_ends",
            "seg_slots",
            "row_scale",
            "plan",
            "pair_starts",
            "pair_slots",
            "pair_scales",
        )
    ] + [("max_pairs", ctypes.POINTER(ctypes.c_int64))]


class LoraTable(ctypes.Structure):
    _fields_ = [
        ("adapters", ctypes.c_void_p),
        ("stack", ctypes.POINTER(DLTensor)),
        ("pointers", ctypes.POINTER(DLTensor)),
        ("layout", ctypes.c_int32),
        ("dtype", DLDataType),
        ("rank", ctypes.c_int64),
        ("features", ctypes.c_int64),
        ("layer_idx", ctypes.c_int64),
    ]


class RmsNormOptions(ctypes.Structure):
    _fields_ = [
        ("epsilon", ctypes.c_float),
        ("weight_offset", ctypes.c_int32),
        ("output_scale", ctypes.POINTER(DLTensor)),
        ("row_scales", ctypes.POINTER(DLTensor)),
    ]


def tensor(array):
    """A DLTensor of the array's memory, by reference. It keeps the array alive."""
    codes = {"i": 0, "u": 1, "f": 2}
    result = DLTensor()
    result.data = array.ctypes.data
    result.device = DLDevice(1, 0)
    result.ndim = array.ndim
    result.dtype = DLDataType(codes[array.dtype.kind], 8 * array.itemsize, 1)
    result.shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    strides = [stride // array.itemsize for stride in array.strides]
    result.strides = (ctypes.c_int64 * array.ndim)(*strides)
    result.array = array
    return ctypes.pointer(result)


def open_library(path):
    library = ctypes.CDLL(path)
    library.heddle_version.restype = ctypes.c_char_p
    library.heddle_last_error.restype = ctypes.c_char_p
    pointer, t, batch = ctypes.c_void_p, ctypes.POINTER(DLTensor), ctypes.POINTER(LoraBatch)
    options = ctypes.POINTER(ContextOptions)
    library.heddle_context_options_init.argtypes = [options]
    library.heddle_context_options_init.restype = None
    library.heddle_context_create.argtypes = [ctypes.POINTER(pointer), options]
    library.heddle_context_destroy.argtypes = [pointer]
    library.heddle_context_destroy.restype = None
    library.heddle_rms_norm.argtypes = [pointer, t, t, t, ctypes.POINTER(RmsNormOptions)]
    table = ctypes.POINTER(LoraTable)
    library.heddle_lora_table_init.argtypes = [table]
    library.heddle_lora_table_init.restype = None
    library.heddle_lora_apply.argtypes = [pointer, ctypes.POINTER(t), ctypes.c_int32, t, table, table, batch]
    return library


class Context:
    def __init__(self, num_threads=1):
        options = ContextOptions()
        LIBRARY.heddle_context_options_init(options)
        options.num_threads = num_threads
        self.handle = ctypes.c_void_p()
        status = LIBRARY.heddle_context_create(self.handle, options)
        if status != 0:
            raise RuntimeError(LIBRARY.heddle_last_error().decode())

    def __enter__(self):
        return self.handle

    def __exit__(self, *exc):
        LIBRARY.heddle_context_destroy(self.handle)


class CApi(unittest.TestCase):
    def test_versions(self):
        self.assertEqual(LIBRARY.heddle_abi_version(), 5)
        self.assertRegex(LIBRARY.heddle_version().decode(), r"^\d+\.\d+\.\d+$")

    def test_rms_norm_of_a_column_slice(self):
        wide = np.random.default_rng(SEED).standard_normal((5, 100)).astype(np.float32)
        x, weight = wide[::2, 10:74], np.linspace(-1, 1, 64, dtype=np.float32)
        y = np.full((3, 64), np.nan, np.float32)
        with Context() as context:
            options = RmsNormOptions(0.25, 1)
            status = LIBRARY.heddle_rms_norm(context, tensor(y), tensor(x), tensor(weight), options)
            self.assertEqual(status, 0)
        x = x.astype(np.float64)
        want = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 0.25) * (1 + weight)
        np.testing.assert_allclose(y, want, rtol=1e-6, atol=1e-7)

    def test_several_adapters_of_a_token(self):
        rng = np.random.default_rng(SEED)
        shapes = (13, 96), (4, 8, 96), (4, 50, 8)
        x, a_stack, b_stack = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
        counts = np.arange(13) % 4
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        slots = (np.arange(starts[-1]) % 5 - 1).astype(np.int32)
        scales = np.linspace(-1, 1, len(slots), dtype=np.float32)
        want = np.ones((13, 50))
        for t in range(13):
            for pair in range(starts[t], min(starts[t + 1], starts[t] + 2)):
                if slots[pair] >= 0:
                    h = a_stack[slots[pair]].astype(np.float64) @ x[t]
                    want[t] += scales[pair] * (b_stack[slots[pair]].astype(np.float64) @ h)
        y = np.ones((13, 50), np.float32)
        a, b = LoraTable(), LoraTable()
        for table, stack, layout in ((a, a_stack, RANK_MAJOR), (b, b_stack, RANK_MINOR)):
            LIBRARY.heddle_lora_table_init(table)
            table.stack, table.layout = tensor(stack), layout
        batch = LoraBatch(
            pair_starts=tensor(starts),
            pair_slots=tensor(slots),
            pair_scales=tensor(scales),
            max_pairs=ctypes.pointer(ctypes.c_int64(2)),
        )
        ys = (ctypes.POINTER(DLTensor) * 1)(tensor(y))
        with Context() as context:
            status = LIBRARY.heddle_lora_apply(context, ys, 1, tensor(x), a, b, batch)
        self.assertEqual(status, 0, LIBRARY.heddle_last_error())
        np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-4)

    def test_errors_have_a_status_and_a_message(self):
        x, weight = tensor(np.zeros((2, 6), np.float32)), tensor(np.zeros(5, np.float32))
        doubles = tensor(np.zeros((2, 6)))

        def expect(status, message, *arguments):
            self.assertEqual(LIBRARY.heddle_rms_norm(*arguments, None), status)
            self.assertIn(message, LIBRARY.heddle_last_error().decode())

        with Context() as context:
            wrong_width = "weight.size(0) is 5, expected width = 6"
            expect(INVALID_ARGUMENT, wrong_width, context, x, x, weight)
            expect(INVALID_ARGUMENT, "weight is NULL", context, x, x, None)
            expect(INVALID_ARGUMENT, "context is NULL", None, x, x, weight)
            expect(UNSUPPORTED, "type code 2 with 64 bits", context, doubles, doubles, weight)


if __name__ == "__main__":
    print(f"HEDDLE_TEST_SEED={SEED}", flush=True)
    LIBRARY = open_library(sys.argv.pop(1))
    unittest.main()
