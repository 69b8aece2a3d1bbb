"""Compiled code is kept, and found again under the same name.

Each `kernel` makes a kernel that knows of no other, as in a new process.
"""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

numba = pytest.importorskip("numba")

from truenorm import user_cache  # noqa: E402
from truenorm.kernels.fused import compiling  # noqa: E402
from truenorm.kernels.fused.compiling import compiled, kernel  # noqa: E402

VERSIONS = ["sys.version", "llvmlite.__version__", "numba.__version__", "numpy.__version__"]


def doubled(x: Any) -> Any:
    return 2 * x


def found(value: float = 21) -> bool:
    """Call a new kernel, and tell whether compiled code was found."""
    function: Any = kernel(doubled)
    result = function(value)
    assert (result, type(result)) == (2 * value, type(value))
    return bool(function.stats.cache_hits)


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in for the folder of compiled functions."""
    folder = tmp_path / "sources"
    shutil.copytree(compiling.SOURCES, folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(compiling, "SOURCES", folder)
    monkeypatch.setattr(compiling, "IMPORTED", compiling._digest())
    return folder


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRUENORM_CACHE_DIR", str(tmp_path / "place"))
    return tmp_path / "place"


def files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


class TestName:
    """Of the folder for sources and versions, and of the file for the rest."""

    @pytest.mark.parametrize(
        ("edited", "same"),
        [
            ("blocks.py", True),
            ("compiled/rows/sums.py", False),
            ("compiled/narrow/forward.py", False),
            ("compiled/new.py", False),
        ],
    )
    def test_a_driver_may_change(
        self, edited: str, same: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What is compiled is kept: only kernels, and what they are given, drop it."""
        package = tmp_path / "fused"
        shutil.copytree(Path(compiling.__file__).parent, package)
        monkeypatch.setattr(compiling, "SOURCES", package / compiling.SOURCES.name)
        assert compiling._digest() == compiling.IMPORTED
        with (package / edited).open("a", encoding="utf-8") as file:
            file.write("# a comment")
        assert (compiling._digest() == compiling.IMPORTED) is same

    @pytest.mark.parametrize("place", range(len(compiling.BESIDE)))
    def test_constants_and_how_kernels_are_kept_may_not(
        self, place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before, files = compiling._digest(), list(compiling.BESIDE)
        changed = tmp_path / files[place].name
        changed.write_bytes(files[place].read_bytes() + b"\n")
        files[place] = changed
        monkeypatch.setattr(compiling, "BESIDE", tuple(files))
        assert compiling._digest() != before

    def test_renamed(self, sources: Path) -> None:
        (sources / "rows" / "sums.py").rename(sources / "rows" / "totals.py")
        assert compiling._digest() != compiling.IMPORTED

    @pytest.mark.parametrize("what", VERSIONS)
    def test_versions(self, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(what, "0.0")
        assert compiling._digest() != compiling.IMPORTED

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

    @pytest.mark.parametrize("decorator", [kernel, compiled, compiled(fastmath=True)])
    def test_inside_a_function(self, decorator: Any) -> None:
        with pytest.raises(TypeError, match=r"<lambda> is inside a function"):
            decorator(lambda x: x)


class TestKept:
    def test_for_each_type(self, place: Path) -> None:
        assert [found(), found(), found(2.5), found(2.5)] == [False, True, False, True]
        assert len(files(place / compiling.IMPORTED)) == 2
        shutil.rmtree(place)  # while it is in use
        assert [found(), found()] == [False, True]

    def test_nothing_can_be(self, place: Path) -> None:
        place.touch()
        assert [found(), found()] == [False, False]

    @pytest.mark.parametrize("content", [b"garbage", b"N."])
    def test_what_is_nothing_of_ours(self, place: Path, content: bytes) -> None:
        """It cannot be unpickled, or not to what it should be."""
        assert not found()
        (file,) = files(place)
        user_cache.write(compiling.IMPORTED, file.name, content)
        assert [found(), found()] == [False, True]

    def test_other_types(self, place: Path) -> None:
        """Two types may have the same name."""
        assert not found(2.5)
        (of_float,) = files(place)
        assert not found()
        (of_int,) = files(place) - {of_float}
        shutil.copy(of_float, of_int)
        assert [found(), found()] == [False, True]

    def test_sources_edited_after_import(self, place: Path, sources: Path) -> None:
        assert not found()
        (sources / "new.py").touch()
        assert [found(), found(2.5)] == [False, False]
        assert len(files(place)) == 1
        (sources / "new.py").unlink()
        assert found()

    def test_no_sources(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(compiling, "SOURCES", place.parent / "in_an_archive")
        monkeypatch.setattr(compiling, "IMPORTED", compiling._digest())
        assert [found(), found()] == [False, False]
        assert not place.exists()

    @pytest.mark.parametrize(
        "what", ["compiler.CompileResult.lifted", "codegen.CodeLibrary.has_dynamic_globals"]
    )
    def test_what_is_of_this_process(
        self, place: Path, what: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(f"numba.core.{what}", property(lambda _: True))
        assert [found(), found()] == [False, False]
        assert not place.exists()

    def test_without_compiling(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("numba.core.config.DISABLE_JIT", True)
        assert kernel(doubled) is compiled(doubled) is doubled


class TestOtherNumba:
    """Its private names may be gone."""

    @pytest.mark.parametrize(
        "name",
        [
            "codegen.CPUCodegen.magic_tuple",
            "codegen.CodeLibrary.has_dynamic_globals",
            "compiler.CompileResult._reduce",
            "compiler.CompileResult._rebuild",
            "serialize.dumps",
        ],
    )
    def test_one_without_a_name(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        with monkeypatch.context() as other:
            other.delattr(f"numba.core.{name}")
            assert [found(), found()] == [False, False]
        found()
        assert found()

    def test_one_without_a_run_time_system(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Only what allocates asks for it."""
        assert kernel(_nrt=True)(doubled)(21) == 42
        found()
        monkeypatch.delattr("numba.core.runtime.nrt.rtsys")
        allocating: Any = kernel(_nrt=True)(doubled)
        assert allocating(21) == 42
        assert not allocating.stats.cache_hits
        assert found()

    @pytest.mark.parametrize("names", [{}, {"_cache": SimpleNamespace(load=None)}])
    def test_another_kind_of_cache(
        self, names: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        given: Any = SimpleNamespace(**names)
        monkeypatch.setattr(numba, "njit", lambda **_: lambda _: given)
        assert kernel(doubled) is compiled(doubled) is given
        assert vars(given) == names

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
