"""Run a cocotb model inside the Python program itself, for a Python that has no shared library.

cocotb loads ``libpython`` into the simulator. Debian's ``python3`` has none unless a further package is installed, but
the program exports all of Python's C interface. So the model is built as a library, and a tiny library preloaded into
``python3`` starts the model's ``main`` in place of Python's.
"""

import subprocess
from pathlib import Path

from .cache import BuildFailed, cached, content_hash, sim_build_dir
from .toolchain import Toolchain

__all__ = ["launcher"]

_SOURCE = r"""
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>

using Main = int (*)(int, char**, char**);

static int run(int argc, char** argv, char** envp) {
    unsetenv("LD_PRELOAD");  // programs that the tests start are to be themselves
    const char* const path = getenv("SLUICE_MODEL");
    void* const model = path ? dlopen(path, RTLD_NOW | RTLD_GLOBAL) : nullptr;
    void* const start = model ? dlsym(model, "main") : nullptr;
    if (!start) {
        std::fprintf(stderr, "cannot start model %s: %s\n", path ? path : "(SLUICE_MODEL is not set)", dlerror());
        return 127;
    }
    return reinterpret_cast<Main>(start)(argc, argv, envp);
}

// glibc's start-up code calls this with the program's main; everything else about the start stays as it is.
extern "C" int __libc_start_main(Main, int argc, char** argv, void (*init)(), void (*fini)(), void (*rtld_fini)(),
                                 void* stack_end) {
    using Start = int (*)(Main, int, char**, void (*)(), void (*)(), void (*)(), void*);
    const auto real = reinterpret_cast<Start>(dlsym(RTLD_NEXT, "__libc_start_main"));
    return real(run, argc, argv, init, fini, rtld_fini, stack_end);
}
"""


def launcher(toolchain: Toolchain) -> Path:
    """The library to preload; the model's path goes into the environment variable ``SLUICE_MODEL``."""

    def build(work: Path) -> None:
        (work / "launcher.cpp").write_text(_SOURCE)
        command = [toolchain.cxx, "-O1", "-fPIC", "-shared", "-o", "launcher.so", "launcher.cpp", "-ldl"]
        done = subprocess.run(command, cwd=work, text=True, capture_output=True, check=False)
        (work / "build.log").write_text(done.stdout + done.stderr)
        if done.returncode:
            raise BuildFailed(f"C++ failed for the cocotb launcher\n{done.stderr}")

    key = content_hash(_SOURCE, toolchain.cxx, toolchain.cxx_version)
    return cached(sim_build_dir() / "tools" / f"launcher-{key}", build) / "launcher.so"
