"""The user cache: its folder, damaged files, and files that other users can write."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from truenorm import user_cache

POSIX = pytest.mark.skipif(user_cache.WINDOWS, reason="owner and mode have no meaning")
CONTENT = bytes(range(20))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set a home directory that does not exist yet, and unset the variables."""
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


class TestFolder:
    @pytest.mark.parametrize(
        ("chosen", "caches", "expected"),
        [
            ("", "", "home/.cache/truenorm"),
            ("", "{}/caches", "caches/truenorm"),
            ("", "relative", "home/.cache/truenorm"),
            ("{}/chosen", "{}/caches", "chosen"),
        ],
    )
    def test_default_and_variables(
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

    def test_no_other_folder_is_used(self, place: Path) -> None:
        place.write_text("a file")
        with pytest.raises(OSError, match="place"):
            write()
        assert not is_read()
        assert [*place.parent.iterdir()] == [place]

    @POSIX
    def test_without_a_home(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The current folder may belong to another user, and is not used."""
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

    def test_full_disk(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The previous file stays, and no other file."""

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

    def test_read_only_disk(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Existing files are read: a container image may contain them."""
        write()
        monkeypatch.setattr("tempfile.TemporaryDirectory", Mock(side_effect=PermissionError))
        assert is_read()
        with pytest.raises(PermissionError):
            write()


def owned_by_another(
    status_of: Callable[..., os.stat_result], name: str
) -> Callable[..., os.stat_result]:
    """Return a stat function that reports another owner for paths with this name."""

    def status(path: Any, **options: Any) -> os.stat_result:
        mode, inode, device, links, uid, *rest = status_of(path, **options)
        is_other = str(path).endswith(name) or isinstance(path, int)
        return os.stat_result((mode, inode, device, links, uid + is_other, *rest))

    return status


@POSIX
class TestOtherUsers:
    """Another user with write access to cache files could run code as this user."""

    def test_modes_of_new_files(self, place: Path) -> None:
        before = os.umask(0)
        try:
            write()
        finally:
            os.umask(before)
        modes = [path.stat().st_mode & 0o777 for path in (place, *sorted(place.rglob("*")))]
        assert modes == [0o700, 0o700, 0o600]

    @pytest.mark.parametrize("mode", [0o020, 0o002])
    @pytest.mark.parametrize("inside", ["", "folder", "folder/name"])
    def test_writable_by_others(self, place: Path, inside: str, mode: int) -> None:
        """In a writable folder, other users could replace files by other valid ones."""
        file = write()
        path = place / inside
        before = path.stat().st_mode
        path.chmod(before | 0o055)
        assert is_read()
        path.chmod(before | mode)
        assert not is_read()
        if path != file:
            with pytest.raises(PermissionError, match="by this user alone"):
                write(b"new")
            path.chmod(before)
        else:
            write()
        assert is_read()

    @pytest.mark.parametrize(
        ("function", "name"),
        [
            *(
                (function, name)
                for function in ("Path.lstat", "Path.stat")
                for name in ("place", "folder")
            ),
            ("os.fstat", ""),
        ],
    )
    def test_owned_by_another(
        self, place: Path, monkeypatch: pytest.MonkeyPatch, function: str, name: str
    ) -> None:
        """The folder, the link to it, or the file."""
        (place.parent / "real").mkdir(mode=0o700)
        place.symlink_to(place.parent / "real")
        write()
        assert is_read()
        module: Any = Path if function.startswith("Path") else os
        attribute = function.partition(".")[2]
        stat = owned_by_another(getattr(module, attribute), name)
        monkeypatch.setattr(module, attribute, stat)
        assert not is_read()
        if name:
            with pytest.raises(PermissionError):
                write(b"new")

    def test_home_of_another_user(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """With sudo, root would create files that the owner of the home cannot remove."""
        home.mkdir()
        monkeypatch.setattr(Path, "stat", owned_by_another(Path.stat, "home"))
        with pytest.raises(PermissionError, match="belongs to another user"):
            write()
        assert not [*home.iterdir()]

    def test_windows(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(user_cache, "WINDOWS", True)
        monkeypatch.delattr(os, "geteuid")
        place.mkdir()
        place.chmod(0o777)
        write()
        assert is_read()
