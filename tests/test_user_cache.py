"""Files are kept in one place, whole, and read only if nobody else can have written them."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from truenorm import user_cache

POSIX = pytest.mark.skipif(user_cache.WINDOWS, reason="there, owner and mode say nothing")
CONTENT = bytes(range(20))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the user a home that does not exist yet, and no variables."""
    for name in ("TRUENORM_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRUENORM_CACHE_DIR", str(tmp_path / "place"))
    return tmp_path / "place"


def write(content: bytes = CONTENT) -> Path:
    return user_cache.write("folder", "name", content)


def is_read() -> bool:
    with suppress(OSError):
        return user_cache.read("folder", "name") == CONTENT
    return False


class TestPlace:
    @pytest.mark.parametrize(
        ("chosen", "caches", "expected"),
        [
            ("", "", "home/.cache/truenorm"),
            ("", "{}/caches", "caches/truenorm"),
            ("", "relative", "home/.cache/truenorm"),
            ("{}/chosen", "{}/caches", "chosen"),
        ],
    )
    def test_there_is_one(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        chosen: str,
        caches: str,
        expected: str,
    ) -> None:
        monkeypatch.setenv("TRUENORM_CACHE_DIR", chosen.format(tmp_path))
        monkeypatch.setenv("XDG_CACHE_HOME", caches.format(tmp_path))
        file = write()
        assert file == tmp_path / expected / "folder" / "name"
        assert is_read()
        assert [path for path in tmp_path.rglob("*") if path.is_file()] == [file]

    def test_and_no_other(self, place: Path) -> None:
        place.write_text("a file")
        with pytest.raises(OSError, match="place"):
            write()
        assert not is_read()
        assert [*place.parent.iterdir()] == [place]

    @POSIX
    def test_without_a_home(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nor in the current folder, which may be anybody's."""
        monkeypatch.delenv("HOME")
        monkeypatch.setattr("pwd.getpwuid", Mock(side_effect=KeyError))
        with pytest.raises(RuntimeError):
            write()
        assert not [*tmp_path.iterdir()]


@pytest.mark.usefixtures("place")
class TestContent:
    def test_damage(self) -> None:
        file = write()
        whole = file.read_bytes()
        for at in range(len(whole)):
            for damaged in (whole[:at], whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]):
                file.write_bytes(damaged)
                with pytest.raises(OSError, match="damaged"):
                    user_cache.read("folder", "name")

    def test_a_full_disk(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What was there before stays, and nothing else does."""

        def half(path: Path, content: bytes) -> int:
            with path.open("wb") as file:
                file.write(content[: len(content) // 2])
            raise OSError("full")

        file = write()
        monkeypatch.setattr(Path, "write_bytes", half)
        with pytest.raises(OSError, match="full"):
            write(b"new")
        assert is_read()
        assert [*file.parent.iterdir()] == [file]

    def test_a_disk_for_reading(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What is there is used: an image of a container may come with it."""
        write()
        monkeypatch.setattr("tempfile.TemporaryDirectory", Mock(side_effect=PermissionError))
        assert is_read()
        with pytest.raises(PermissionError):
            write()


def owned_by_another(
    status_of: Callable[..., os.stat_result], name: str
) -> Callable[..., os.stat_result]:
    """Return the same, which says of what has this name that it is somebody else's."""

    def status(path: Any, **options: Any) -> os.stat_result:
        mode, inode, device, links, uid, *rest = status_of(path, **options)
        theirs = str(path).endswith(name) or isinstance(path, int)
        return os.stat_result((mode, inode, device, links, uid + theirs, *rest))

    return status


@POSIX
class TestOthers:
    """Whoever can write where we read from could run code as us."""

    def test_they_cannot_write(self, place: Path) -> None:
        before = os.umask(0)
        try:
            write()
        finally:
            os.umask(before)
        modes = [path.stat().st_mode & 0o777 for path in (place, *sorted(place.rglob("*")))]
        assert modes == [0o700, 0o700, 0o600]

    @pytest.mark.parametrize("mode", [0o020, 0o002])
    @pytest.mark.parametrize("inside", ["", "folder", "folder/name"])
    def test_what_they_can_write_to(self, place: Path, inside: str, mode: int) -> None:
        """Not to a folder either: whole files of ours could be moved there."""
        file = write()
        theirs = place / inside
        before = theirs.stat().st_mode
        theirs.chmod(before | 0o055)
        assert is_read()
        theirs.chmod(before | mode)
        assert not is_read()
        if theirs != file:
            with pytest.raises(PermissionError, match="ours alone"):
                write(b"new")
            theirs.chmod(before)
        else:
            write()
        assert is_read()

    @pytest.mark.parametrize(
        ("whose", "name"),
        [
            *(
                (whose, name)
                for whose in ("Path.lstat", "Path.stat")
                for name in ("place", "folder")
            ),
            ("os.fstat", ""),
        ],
    )
    def test_what_is_theirs(
        self, place: Path, monkeypatch: pytest.MonkeyPatch, whose: str, name: str
    ) -> None:
        """The folder, the link to it, or the file."""
        (place.parent / "real").mkdir(mode=0o700)
        place.symlink_to(place.parent / "real")
        write()
        assert is_read()
        owner: Any = Path if whose.startswith("Path") else os
        function = whose.partition(".")[2]
        monkeypatch.setattr(owner, function, owned_by_another(getattr(owner, function), name))
        assert not is_read()
        if name:
            with pytest.raises(PermissionError):
                write(b"new")

    def test_a_home_of_theirs(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """As sudo may leave it: they could not use, nor remove, what root makes there."""
        home.mkdir()
        monkeypatch.setattr(Path, "stat", owned_by_another(Path.stat, "home"))
        with pytest.raises(PermissionError, match="could not use"):
            write()
        assert not [*home.iterdir()]

    def test_windows(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(user_cache, "WINDOWS", True)
        monkeypatch.delattr(os, "geteuid")
        place.mkdir()
        place.chmod(0o777)
        write()
        assert is_read()
