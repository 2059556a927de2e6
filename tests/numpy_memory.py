"""Makes numpy take the memory of every array from malloc, so that AddressSanitizer sees when it is freed.

By itself, numpy keeps freed blocks below 1 KB for the next arrays of the same size.
"""

import ctypes
import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

_SET_HANDLER = 304
"""Index of PyDataMem_SetHandler in numpy's table of functions."""
_SOURCE = """
#include <stdlib.h>
static void *new(void *context, size_t size) { (void)context; return malloc(size); }
static void *zeros(void *context, size_t count, size_t size) { (void)context; return calloc(count, size); }
static void *resize(void *context, void *old, size_t size) { (void)context; return realloc(old, size); }
static void drop(void *context, void *old, size_t size) { (void)context, (void)size; free(old); }
struct {
    char name[127];
    unsigned char version;
    void *context;
    void *(*new)(void *, size_t), *(*zeros)(void *, size_t, size_t), *(*resize)(void *, void *, size_t);
    void (*drop)(void *, void *, size_t);
} handler = {"malloc", 1, NULL, new, zeros, resize, drop};
const char capsule_name[] = "mem_handler";
"""
"""A PyDataMem_Handler of numpy's C interface, and the name of its capsule, which must outlive the interpreter."""


def allocate_by_malloc() -> None:
    """Use malloc for all arrays that this thread makes from now on."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "handler.so"
        command = [*shlex.split(os.environ.get("CC", "cc")), "-shared", "-fPIC", "-x", "c", "-", "-o", str(path)]
        subprocess.run(command, input=_SOURCE.encode(), check=True)
        library = ctypes.CDLL(str(path))
    handler, name = (ctypes.addressof(ctypes.c_char.in_dll(library, symbol)) for symbol in ("handler", "capsule_name"))
    new_capsule, pointer_of = ctypes.pythonapi.PyCapsule_New, ctypes.pythonapi.PyCapsule_GetPointer
    new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p] * 3
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_void_p]
    numpy: Any = np
    functions = ctypes.cast(pointer_of(numpy._core._multiarray_umath._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p))
    set_handler = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(functions[_SET_HANDLER])
    set_handler(new_capsule(handler, name, None))
    assert numpy._core.multiarray.get_handler_name() == "malloc"
