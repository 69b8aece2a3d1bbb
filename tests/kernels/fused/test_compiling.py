"""Compiled code is kept for the next process: never out of date, never written by others.

Within this process, each `compiled` makes a kernel that knows of no other, as in a new process.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

numba = pytest.importorskip("numba")

from truenorm.kernels.fused import compiling  # noqa: E402
from truenorm.kernels.fused.compiling import compiled  # noqa: E402

HELPER = """
from fake.compiling import compiled

@compiled
def scaled(x):
    return 2.0 * x
"""
KERNELS = """
import numpy as np
from numba import types
from numba.extending import intrinsic
from fake.compiling import compiled
from fake.compiled.helper import scaled

@intrinsic
def fma(typing, x, y, z):
    def code(context, builder, signature, args):
        return builder.fma(*args)
    return types.float64(types.float64, types.float64, types.float64), code

@compiled(_nrt=True)
def lost(x):
    if not x.size:
        raise ValueError("nothing")
    result = np.empty_like(x)
    for i in range(x.size):
        result[i] = fma(scaled(x[i]), x[i], -(scaled(x[i]) * x[i])) * 2.0**60
    return result
"""
# 2 (1 + 2**-30)**2 loses 2 * 2**-60 when it is rounded.
CALL = """
import numpy as np
from fake.compiled.kernels import lost
try:
    lost(np.zeros(0))
except ValueError:
    print(lost(np.array([1 + 2.0**-30])), sum(lost.stats.cache_hits.values()))
"""
PLAIN = (
    "from functools import partial\nfrom numba import njit\ncompiled = partial(njit, cache=True)"
)
VERSIONS = ["llvmlite.__version__", "numba.__version__", "numpy.__version__", "sys.version"]
PRIVATE = ["codegen.CPUCodegen.magic_tuple", "codegen.CodeLibrary.has_dynamic_globals"]
PRIVATE += ["compiler.CompileResult._reduce", "compiler.CompileResult._rebuild"]
PRIVATE += ["runtime.nrt.rtsys", "serialize.dumps"]
POSIX = pytest.mark.skipif(compiling.WINDOWS, reason="there, owner and mode say nothing")


def start(root: Path, code: str = CALL, **variables: str) -> subprocess.Popen[str]:
    ours = ("NUMBA_", "TRUENORM_", "XDG_")
    environment = {key: v for key, v in os.environ.items() if not key.startswith(ours)}
    # Bytecode of a file that changes within a second may be out of date.
    environment |= {"HOME": str(root), "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code],
        env=environment | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(root: Path, code: str = CALL, **variables: str) -> str:
    return start(root, code, **variables).communicate()[0].strip()


def package(root: Path, how: str | None = None) -> Path:
    folder = root / "fake" / compiling.SOURCES.name
    folder.mkdir(parents=True)
    source = Path(compiling.__file__).read_text(encoding="utf-8")
    (folder.parent / "compiling.py").write_text(how or source, encoding="utf-8")
    for name, content in {"helper": HELPER, "kernels": KERNELS}.items():
        (folder / f"{name}.py").write_text(content, encoding="utf-8")
    return folder


def triple_instead_of_double(folder: Path) -> None:
    (folder / "helper.py").write_text(HELPER.replace("2.0", "3.0"), encoding="utf-8")


class TestNewProcess:
    def test_it_finds_what_was_compiled(self, tmp_path: Path) -> None:
        """With another function inlined, an intrinsic, memory that is allocated, an exception."""
        package(tmp_path)
        assert run(tmp_path) == "[2.] 0"
        assert run(tmp_path) == "[2.] 1"
        # What was compiled for one processor may not run on another.
        assert run(tmp_path, NUMBA_CPU_NAME="generic") == "[2.] 0"

    def test_a_change_in_a_helper_is_noticed(self, tmp_path: Path) -> None:
        folder = package(tmp_path)
        assert run(tmp_path) == "[2.] 0"
        triple_instead_of_double(folder)
        assert run(tmp_path) == "[3.] 0"

    def test_numba_would_not_notice(self, tmp_path: Path) -> None:
        """When this fails, Numba's own cache may do."""
        folder = package(tmp_path, PLAIN)
        assert run(tmp_path) == "[2.] 0"
        triple_instead_of_double(folder)
        assert run(tmp_path) == "[2.] 1"

    def test_several_at_once(self, tmp_path: Path) -> None:
        """Processes of several threads that compile for two types."""
        folder = package(tmp_path)
        code = """
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from fake.compiled.kernels import lost
with ThreadPoolExecutor(4) as pool:
    data = [np.array([1 + 2.0**-30], dtype) for dtype in 2 * ("f4", "f8")]
    print(*pool.map(lost, data))
"""
        ran = [start(tmp_path, code) for _ in range(2)]
        results = {process.communicate()[0].strip() for process in ran}
        assert results == {"[0.] [2.] [0.] [2.]"}
        (kept,) = (folder / "__pycache__" / "compiled").iterdir()
        # One file for each function and type, and nothing half-written.
        names = sorted(path.name.split("-")[0] for path in kept.iterdir())
        assert names == 2 * ["lost"] + 2 * ["scaled"]

    def test_without_compiling(self, tmp_path: Path) -> None:
        package(tmp_path)
        before = sorted(tmp_path.rglob("*"))
        code = "from fake.compiled.helper import scaled; print(type(scaled).__name__, scaled(2))"
        assert run(tmp_path, code, NUMBA_DISABLE_JIT="1") == "function 4.0"
        assert sorted(tmp_path.rglob("*")) == before


def doubled(x: Any) -> Any:
    return 2 * x


def found(value: float = 21) -> bool:
    """Call a new kernel, and tell whether compiled code was found."""
    kernel: Any = compiled(doubled)
    result = kernel(value)
    assert (result, type(result)) == (2 * value, type(value))
    return bool(kernel.stats.cache_hits)


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in for the folder of the package, and leave no other place."""
    folder = tmp_path / "sources"
    (folder / "deeper").mkdir(parents=True)
    for name in ("one.py", "two.py", "deeper/three.py"):
        (folder / name).write_text(name, encoding="utf-8")
    monkeypatch.setattr(compiling, "SOURCES", folder)
    monkeypatch.setattr(compiling, "IMPORTED", compiling._digest())
    monkeypatch.delenv("TRUENORM_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    for home in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(home, str(tmp_path / "home"))
    return folder


@pytest.fixture
def place(sources: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = sources.parent / "place"
    monkeypatch.setenv("TRUENORM_CACHE_DIR", str(folder))
    return folder


def raising(error: type[Exception]) -> Callable[..., None]:
    def function(*_: Any) -> None:
        raise error

    return function


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


class TestName:
    """Of the folder for sources and versions, and of the file for the rest."""

    def test_sources(self, sources: Path) -> None:
        names = [compiling._digest()]
        for change in ("one.py", "two.py", "deeper/three.py", "new.py"):
            (sources / change).write_text("changed", encoding="utf-8")
            names.append(compiling._digest())
        (sources / "two.py").rename(sources / "second.py")
        names.append(compiling._digest())
        assert len(set(names)) == 6

    @pytest.mark.parametrize(
        ("edited", "same"),
        [
            ("blocks.py", True),
            ("correct_backward.py", True),
            ("compiling.py", True),
            ("compiled/ground.py", False),
            ("compiled/narrow/forward.py", False),
        ],
    )
    def test_a_driver_may_change(
        self, edited: str, same: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What is compiled is kept: only kernels, and what they are given, drop it."""
        package = tmp_path / "fused"
        shutil.copytree(Path(compiling.__file__).parent, package)
        monkeypatch.setattr(compiling, "SOURCES", package / compiling.SOURCES.name)
        before = compiling._digest()
        with (package / edited).open("a", encoding="utf-8") as file:
            file.write("# a comment")
        assert (compiling._digest() == before) is same

    @pytest.mark.usefixtures("sources")
    @pytest.mark.parametrize("what", VERSIONS)
    def test_versions(self, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
        before = compiling._digest()
        monkeypatch.setattr(what, "0.0")
        assert compiling._digest() != before

    def test_what_is_compiled(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def name(processor: str = "x", types: Any = (numba.int64,), **options: Any) -> str:
            codegen = SimpleNamespace(magic_tuple=lambda: ("triple", processor, "+fma"))
            return compiling._Kept(doubled, options)._file(types, codegen)

        names = [name(), name("y"), name(types=(numba.float64,)), name(fastmath=True)]
        monkeypatch.setenv("NUMBA_BOUNDSCHECK", "1")
        names.append(name())
        assert len(set(names)) == 5
        # Eight and zero want the same slot of a set: the first one gets it.
        assert str({8, 0}) != str({0, 8})
        assert name(fastmath={8, 0}) == name(fastmath={0, 8})
        monkeypatch.setenv("NUMBA_NUM_THREADS", "1")
        assert name() == names[-1]

    def test_inside_a_function(self) -> None:
        def inner(x: int) -> int:
            return x

        with pytest.raises(TypeError, match=r"<locals>\.inner is inside a function"):
            compiled(inner)
        with pytest.raises(TypeError, match="is inside a function"):
            compiled(fastmath=True)(inner)


class TestPlace:
    def test_beside_the_sources(self, sources: Path) -> None:
        assert [found(), found(), found(2.5), found(2.5)] == [False, True, False, True]
        kept = files(sources / "__pycache__" / "compiled" / compiling.IMPORTED)
        assert [path.name.split("-")[0] for path in kept] == ["doubled", "doubled"]
        assert not (sources.parent / "home").exists()

    def test_in_the_home(self, sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """If no folder can be made beside the sources."""
        (sources / "__pycache__").touch()
        assert [found(), found()] == [False, True]
        assert files(sources.parent / "home" / ".cache" / "truenorm")
        monkeypatch.setenv("XDG_CACHE_HOME", str(sources.parent / "xdg"))
        assert [found(), found()] == [False, True]
        assert files(sources.parent / "xdg" / "truenorm")

    @POSIX
    def test_nowhere(self, sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Not in the current folder either, which may be anybody's."""
        (sources / "__pycache__").touch()
        monkeypatch.chdir(sources)
        before = sorted(sources.parent.rglob("*"))
        monkeypatch.delenv("HOME")
        monkeypatch.setattr("pwd.getpwuid", raising(KeyError))
        assert [found(), found()] == [False, False]
        monkeypatch.setenv("XDG_CACHE_HOME", "relative")
        assert [found(), found()] == [False, False]
        assert sorted(sources.parent.rglob("*")) == before

    def test_where_it_was_told(
        self, place: Path, sources: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """And nowhere else."""
        assert [found(), found()] == [False, True]
        assert files(place)
        monkeypatch.setenv("TRUENORM_CACHE_DIR", str(sources / "one.py" / "below"))
        assert [found(), found()] == [False, False]
        assert not (sources / "__pycache__").exists()

    def test_removed_while_in_use(self, place: Path) -> None:
        assert [found(), found()] == [False, True]
        shutil.rmtree(place)
        assert [found(), found()] == [False, True]

    def test_read_only(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """What is there is used: an image of a container may come with it."""
        assert not found()
        monkeypatch.setattr(os, "utime", raising(PermissionError))
        monkeypatch.setattr("tempfile.mkstemp", raising(PermissionError))
        assert found()
        assert not found(2.5)
        assert len(files(place)) == 1

    def test_a_full_disk(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def half(path: Path, content: bytes) -> int:
            with path.open("wb") as file:
                file.write(content[: len(content) // 2])
            raise OSError

        monkeypatch.setattr(Path, "write_bytes", half)
        assert [found(), found()] == [False, False]
        assert place.exists()
        assert not files(place)


class TestContent:
    def test_damage(self, place: Path) -> None:
        assert compiling._write(place, "name", bytes(range(20)))
        assert compiling._read(place, "name") == bytes(range(20))
        (file,) = files(place)
        whole = file.read_bytes()
        for at in range(len(whole)):
            file.write_bytes(whole[:at])
            assert compiling._read(place, "name") is None
            file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            assert compiling._read(place, "name") is None

    def test_it_is_compiled_again(self, place: Path) -> None:
        assert not found()
        (file,) = files(place)
        for content in (b"", b"garbage", file.read_bytes()[:-1]):
            file.write_bytes(content)
            assert [found(), found()] == [False, True]
        # Whole, but nothing that can be unpickled, or not to what it should be.
        for content in (b"garbage", b"N."):
            assert compiling._write(place, file.name, content)
            assert [found(), found()] == [False, True]

    def test_other_types(self, place: Path) -> None:
        """Two types may have the same name."""
        assert not found(2.5)
        (of_float,) = files(place)
        assert not found()
        (of_int,) = set(files(place)) - {of_float}
        shutil.copy(of_float, of_int)
        assert [found(), found()] == [False, True]

    def test_sources_edited_after_import(self, place: Path, sources: Path) -> None:
        assert not found()
        (sources / "two.py").write_text("edited", encoding="utf-8")
        assert [found(), found(2.5)] == [False, False]
        assert len(files(place)) == 1
        (sources / "two.py").write_text("two.py", encoding="utf-8")
        assert found()

    def test_no_sources(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(compiling, "SOURCES", place.parent / "in_an_archive")
        monkeypatch.setattr(compiling, "IMPORTED", compiling._digest())
        assert [found(), found()] == [False, False]
        assert not place.exists()

    def test_addresses_are_not_kept(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        library = "numba.core.codegen.CodeLibrary.has_dynamic_globals"
        monkeypatch.setattr(library, property(lambda _: True))
        assert [found(), found()] == [False, False]
        assert not place.exists()

    def test_folders_of_older_sources(self, place: Path) -> None:
        """The last ones in use stay, and whatever is not ours."""
        older = [place / f"kernels-{age:016x}" for age in range(20)]
        others = [place / "kernels-by-hand", place / "letters"]
        place.mkdir(mode=0o700)
        for age, folder in enumerate([*older, *others]):
            folder.mkdir()
            os.utime(folder, (1e9 - age, 1e9 - age))
        assert not found()
        ours = place / compiling.IMPORTED
        assert set(place.iterdir()) == {ours, *older[:7], *others}
        os.utime(ours, (0, 0))
        assert found()
        assert ours.stat().st_mtime > 1e9


@POSIX
class TestOthers:
    """Whoever can write where we read from could run code as us."""

    def test_they_cannot_write(self, place: Path) -> None:
        before = os.umask(0)
        try:
            assert not found()
        finally:
            os.umask(before)
        modes = [path.stat().st_mode & 0o777 for path in (place, *sorted(place.rglob("*")))]
        assert modes == [0o700, 0o700, 0o600]

    @pytest.mark.parametrize("mode", [0o720, 0o702, 0o777, 0o1777])
    def test_a_folder_they_can_write_to(self, place: Path, mode: int) -> None:
        place.mkdir()
        place.chmod(mode)
        assert [found(), found()] == [False, False]
        assert not files(place)
        place.chmod(0o755)
        assert [found(), found()] == [False, True]
        place.chmod(mode)
        assert not found()

    @pytest.mark.parametrize("mode", [0o720, 0o702, 0o777, 0o1777])
    def test_a_folder_inside_they_can_write_to(self, place: Path, mode: int) -> None:
        """Whole files of ours could be moved there to the names of others."""
        assert [found(), found()] == [False, True]
        inside = place / compiling.IMPORTED
        inside.chmod(mode)
        assert [found(), found(2.5)] == [False, False]
        assert len(files(place)) == 1
        inside.chmod(0o700)
        assert [found(), found(2.5), found(2.5)] == [True, False, True]

    def test_a_folder_inside_of_theirs(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert [found(), found()] == [False, True]
        monkeypatch.setattr(Path, "lstat", owned_by_another(Path.lstat, compiling.IMPORTED))
        assert [found(), found(2.5)] == [False, False]
        assert len(files(place)) == 1

    @pytest.mark.parametrize("mode", [0o620, 0o602])
    def test_a_file_they_can_write_to(self, place: Path, mode: int) -> None:
        assert not found()
        (file,) = files(place)
        file.chmod(mode)
        assert [found(), found()] == [False, True]

    def test_a_folder_of_theirs(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert [found(), found()] == [False, True]
        become_another(monkeypatch)
        assert [found(), found(2.5)] == [False, False]
        assert len(files(place)) == 1

    @pytest.mark.usefixtures("place")
    def test_a_file_of_theirs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert [found(), found()] == [False, True]
        monkeypatch.setattr(os, "fstat", owned_by_another(os.fstat))
        assert not found()

    def test_a_link_of_theirs(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (place.parent / "real").mkdir(mode=0o700)
        place.symlink_to(place.parent / "real")
        assert [found(), found()] == [False, True]
        monkeypatch.setattr(Path, "lstat", owned_by_another(Path.lstat))
        assert [found(), found(2.5)] == [False, False]
        assert len(files(place)) == 1

    def test_a_home_of_theirs(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """As sudo may leave it: they could not use, nor remove, what root makes there."""
        monkeypatch.setenv("TRUENORM_CACHE_DIR", str(place / "new" / "newer"))
        place.mkdir()
        if os.geteuid() == 0:
            os.chown(place, 1, -1)
        else:
            become_another(monkeypatch)
        assert not found()
        assert not list(place.iterdir())

    def test_windows(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(compiling, "WINDOWS", True)
        monkeypatch.delattr(os, "geteuid")
        place.mkdir()
        place.chmod(0o777)
        assert [found(), found()] == [False, True]


def become_another(monkeypatch: pytest.MonkeyPatch) -> None:
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)


def owned_by_another(
    of: Callable[..., os.stat_result], name: str = ""
) -> Callable[..., os.stat_result]:
    """Return the same, which says of what has this ending that it is somebody else's."""

    def status(place: Any) -> os.stat_result:
        mode, inode, device, links, uid, *rest = of(place)
        theirs = str(place).endswith(name)
        return os.stat_result((mode, inode, device, links, uid + theirs, *rest))

    return status


class TestOtherNumba:
    """Its private names may be gone."""

    @pytest.mark.usefixtures("place")
    @pytest.mark.parametrize("name", PRIVATE)
    def test_one_without_a_name(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        with monkeypatch.context() as other:
            other.delattr(f"numba.core.{name}")
            assert [found(), found()] == [False, False]
        found()
        assert found()

    def test_another_kind_of_cache(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for given in (SimpleNamespace(), SimpleNamespace(_cache=SimpleNamespace(load=None))):
            before = vars(given).copy()
            monkeypatch.setattr(numba, "njit", lambda given=given, **_: lambda _: given)
            compiled(doubled)
            assert vars(given) == before

    @pytest.mark.usefixtures("place")
    def test_one_whose_start_is_unknown(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is asked to get everything ready."""
        assert not found()
        refreshed: list[Any] = []
        monkeypatch.setattr("numba.core.cpu.CPUContext.refresh", lambda _: refreshed.append(_))
        assert found()
        assert not refreshed
        monkeypatch.setattr(numba, "version_info", SimpleNamespace(short=(0, 99)))
        assert found()
        assert len(refreshed) == 1
