"""Build the C core; metadata and the compiler's flags are in pyproject.toml.

``TRUENORM_PURE=1`` builds no extension and gives a ``py3-none-any`` wheel. If the extension cannot
be built, the installation succeeds, NumPy computes, and ``not_built.txt`` in the native package
has the reason. ``TRUENORM_REQUIRE_NATIVE=1`` makes that an error. ``TRUENORM_BUILD_CACHE`` is a
folder for object files, since compiling all takes two minutes: a change to a C file compiles that
file. ``TRUENORM_REPOSITORY`` is the address of the repository, for the links of the package's
description and for its project URLs.
"""

import os
import platform
import re
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]

PROJECT = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))
NATIVE = PROJECT["tool"]["truenorm"]["native"]
PACKAGE = Path("truenorm/kernels/native")
SOURCES = Path("src") / PACKAGE
REQUIRED = os.environ.get("TRUENORM_REQUIRE_NATIVE") == "1"
PURE = os.environ.get("TRUENORM_PURE") == "1"
CACHE = os.environ.get("TRUENORM_BUILD_CACHE")
REPOSITORY = os.environ.get("TRUENORM_REPOSITORY", "").rstrip("/")


# Code, whose brackets are no links; or a link without a scheme that leads to a file.
CODE_OR_LINK = re.compile(
    r"^```.*?^```$|`[^`\n]*`|(!?)\[([^\[\]]*)\]\((?!\w+:|#)([^()\s]*)\)",
    re.MULTILINE | re.DOTALL,
)
# A package index shows these addresses beside the description.
PROJECT_URLS = {
    "Source": REPOSITORY,
    "Documentation": f"{REPOSITORY}/blob/HEAD/docs/index.md",
    "Changelog": f"{REPOSITORY}/blob/HEAD/CHANGELOG.md",
    "Issues": f"{REPOSITORY}/issues",
}


def description() -> str:
    """Return README.md for a package index, which has no files that relative links lead to.

    These links become absolute, or plain text if the address of the repository is not known.
    """

    def replaced(match: re.Match[str]) -> str:
        image, text, file = match.groups()
        if file is None:
            return match[0]
        if not REPOSITORY:
            return text
        return f"{image}[{text}]({REPOSITORY}/{'raw' if image else 'blob'}/HEAD/{file})"

    return CODE_OR_LINK.sub(replaced, Path("README.md").read_text(encoding="utf-8"))


class NotBuiltError(Exception):
    """The extension cannot be built; the message is the reason, in one line."""


def reason_to_be_pure() -> str | None:
    """Return why the extension must not be built, or None if it can be."""
    if PURE:
        return "built with TRUENORM_PURE=1"
    if sys.implementation.name != "cpython":
        return f"the C core needs CPython, not {platform.python_implementation()}"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "the C core needs the limited API of 3.11, which free-threaded Python does not have"
    return None


def record(reason: str | None, folder: Path) -> None:
    """Write the reason for a missing extension, and remove what an earlier build left."""
    note = folder / "not_built.txt"
    if reason is None:
        note.unlink(missing_ok=True)
        return
    folder.mkdir(parents=True, exist_ok=True)
    note.write_text(f"{reason}\n", encoding="utf-8")
    for extension in [*folder.glob("_core*.so"), *folder.glob("_core*.pyd")]:
        extension.unlink()
    print(f"the C core is not built, NumPy computes: {reason}")


def run(command: list[str]) -> str:
    """Run a command and return its output; raise NotBuiltError if it fails."""
    print(*command, flush=True)
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    except OSError as error:
        reason = "was not found" if isinstance(error, FileNotFoundError) else error.strerror
        raise NotBuiltError(f"{command[0]} {reason}") from None
    sys.stderr.write(done.stderr)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if re.search(r"\berror\b", line)]
        status = f"{command[0]} failed with exit status {done.returncode}"
        raise NotBuiltError(errors[0].strip() if errors else status)
    return done.stdout


def compile_object(command: list[str]) -> None:
    """Run a command whose last argument is the object file; an interrupted one leaves no file."""
    partial = f"{command[-1]}.{os.getpid()}"
    run([*command[:-1], partial])
    Path(partial).replace(command[-1])


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """Wait until no other process has the lock: one compiles, the others use its result."""
    with path.open("w") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


class BuildModules(build_py):
    """Record why a pure installation has no extension."""

    def run(self) -> None:
        """Copy the modules."""
        super().run()
        if PURE_REASON is not None:
            # An editable installation is the source folder.
            record(PURE_REASON, SOURCES if self.editable_mode else Path(self.build_lib, PACKAGE))


class BuildCore(build_ext):
    """Compile the sources, some of them once per instruction set and type."""

    def run(self) -> None:
        """Build the extension, or record why it cannot be built."""
        folder = SOURCES if self.inplace else Path(self.build_lib, PACKAGE)
        try:
            super().run()
        except NotBuiltError as error:
            if REQUIRED:
                raise SystemExit(f"TRUENORM_REQUIRE_NATIVE=1, but: {error}") from error
            record(str(error), folder)
        else:
            record(None, folder)

    def build_extension(self, ext: Extension) -> None:
        """Compile the extension; with a cache, only object files that it does not have."""
        if self.compiler.compiler_type not in ("unix", "mingw32", "cygwin"):
            raise NotBuiltError("the C core needs the vector types of gcc or clang")
        macros = run([*self.compiler.compiler_so, "-dM", "-E", "-x", "c", os.devnull])
        target = Path(self.get_ext_fullpath(ext.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        # The compiler knows its processor; this one may be another.
        commands = list(self.commands(ext, is_x86="__x86_64__" in macros))
        if not CACHE:
            self.compile_and_link(ext, commands, target)
            return
        folder = Path(CACHE)
        folder.mkdir(parents=True, exist_ok=True)
        headers = b"".join(Path(name).read_bytes() for name in sorted(ext.depends))
        decides_all = repr((sys.version, macros)).encode() + headers
        with lock(folder / "lock"):
            for command in commands:
                *options, source, _, _ = command
                # Folders of headers, which environments have in other places, decide nothing.
                options = [each for each in options if not each.startswith("-I")]
                content = decides_all + repr(options).encode() + Path(source).read_bytes()
                command[-1] = str(folder / f"{sha256(content).hexdigest()}.o")
            self.compile_and_link(ext, commands, target)

    def compile_and_link(self, ext: Extension, commands: list[list[str]], target: Path) -> None:
        """Compile the missing object files on all cores, and link."""
        missing = [command for command in commands if not CACHE or not Path(command[-1]).exists()]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(compile_object, missing))
        objects = [command[-1] for command in commands]
        folders = [f"-L{folder}" for folder in self.library_dirs]
        libraries = [f"-l{name}" for name in self.get_libraries(ext)]
        # Replace the extension in one step: another process may import the old one meanwhile.
        partial = target.with_name(f"{target.name}.{os.getpid()}")
        run([*self.compiler.linker_so, *objects, "-o", str(partial), *folders, *libraries])
        partial.replace(target)

    def commands(self, ext: Extension, is_x86: bool) -> Iterator[list[str]]:
        """Yield the commands that compile; the last argument of each is the object file."""
        # Python's own flags contain -g, which makes the extension five times as large.
        debug = [] if "-g" in os.environ.get("CFLAGS", "") else ["-g0"]
        includes = [f"-I{folder}" for folder in self.include_dirs]
        compiler = [*self.compiler.compiler_so, *debug, *NATIVE["flags"], *includes]
        sets = NATIVE["sets"] if is_x86 else {"baseline": []}
        once = ["-DTRUENORM_X86_SETS"] if is_x86 else []
        folder = Path(self.build_temp)
        folder.mkdir(parents=True, exist_ok=True)
        for source in sorted(map(Path, ext.sources)):
            variants = {"": once}
            if source.name in NATIVE["per-set"]:
                variants = {
                    f"_{name}_{element}": [
                        *flags,
                        f"-DINSTRUCTIONS={name}",
                        f"-DELEMENT={element}",
                    ]
                    for name, flags in sets.items()
                    for element in NATIVE["elements"]
                }
            elif source.name in NATIVE["of-float64"]:
                variants = {f"_{name}": [*sets[name], f"-DINSTRUCTIONS={name}"] for name in sets}
            for suffix, options in variants.items():
                target = folder / f"{source.stem}{suffix}.o"
                yield [*compiler, *options, "-c", str(source), "-o", str(target)]

    def copy_file(self, infile: str, outfile: str, *rest: object, **options: object) -> object:
        """Replace a file in one step: another process may import the old extension meanwhile."""
        partial = f"{outfile}.{os.getpid()}"
        copied = super().copy_file(infile, partial, *rest, **options)
        Path(partial).replace(outfile)
        return copied


PURE_REASON = reason_to_be_pure()
if PURE_REASON is not None and REQUIRED:
    raise SystemExit(f"TRUENORM_REQUIRE_NATIVE=1, but: {PURE_REASON}")
if sys.platform == "darwin":
    # A universal Python compiles for two processors at once, whose flags differ.
    os.environ.setdefault("ARCHFLAGS", f"-arch {platform.machine()}")

core = Extension(
    ".".join([*PACKAGE.parts, "_core"]),
    sources=sorted(str(path) for path in SOURCES.glob("*.c")),
    depends=sorted(str(path) for path in SOURCES.glob("*.h")),
    libraries=["m"] if sys.platform == "win32" else ["m", "pthread"],
    py_limited_api=True,
    optional=not REQUIRED,
)
setup(
    long_description=description(),
    long_description_content_type="text/markdown",
    project_urls=PROJECT_URLS if REPOSITORY else {},
    ext_modules=[core] if PURE_REASON is None else [],
    cmdclass={"build_py": BuildModules, "build_ext": BuildCore},
    # The oldest Python whose limited API the core uses: see Py_LIMITED_API in module.c.
    # Free-threaded Python, which has no limited API, rejects the option.
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if PURE_REASON is None else {},
)
