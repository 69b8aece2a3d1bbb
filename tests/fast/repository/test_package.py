"""What the package says of itself, and what importing it does."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from ast import literal_eval
from email import message_from_string
from email.message import Message
from pathlib import Path
from types import ModuleType

import pytest

import truenorm
import truenorm.verify

ROOT = Path(__file__).parents[3]
BUILD_FILES = (
    "LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.py",
    "src/truenorm/__init__.py",
)  # fmt: skip
IN_SDIST = (
    "CHANGELOG.md",
    "CITATION.cff",
    "benchmarks/results/world.json",  # a page shows it
    "docs/conf.py",
    "docs/figures/layers.svg",
    "examples/package/.github/workflows/norms.yml",
    "src/truenorm/kernels/native/core.h",
    "src/truenorm/kernels/native/module.c",
    "src/truenorm/verify/norms/rms_norm/quick.zip",
    "tests/conftest.py",
    "tests/shared/promise/data/float64-dx.npz",
)
NOT_IN_SDIST = (
    ".ci/check_release.py", ".github/workflows/ci.yml", ".nox/tests/file",
    ".pre-commit-config.yaml", "benchmarks/environments/torch/file.py",
    "benchmarks/results/fingerprint.txt", "build/lib/truenorm/api.py", "dist/truenorm.whl",
    "docs/_build/html/index.html", "examples/.hypothesis/file", "noxfile.py",
    "src/truenorm/__pycache__/api.cpython-311.pyc", "src/truenorm/kernels/native/_core.abi3.so",
    "src/truenorm/kernels/native/not_built.txt", "tests/.pytest_cache/file",
    "tests/full/benchmarks/test_pages.py", "tests/fast/repository/test_links.py",
)  # fmt: skip


# Python with the build flag of a free-threaded one, which has no limited API.
FREE_THREADED_SETUP = """
import runpy, sysconfig

get = sysconfig.get_config_var
sysconfig.get_config_var = lambda name: 1 if name == "Py_GIL_DISABLED" else get(name)
runpy.run_path("setup.py", run_name="__main__")
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a folder with the files that a build reads."""
    for name in BUILD_FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def metadata(checkout: Path, repository: str) -> Message:
    """Return the metadata of a package that is built with the address of the repository."""
    command = [sys.executable, "setup.py", "--quiet", "egg_info"]
    variables = {**os.environ, "TRUENORM_REPOSITORY": repository}
    subprocess.run(command, cwd=checkout, env=variables, check=True)
    (file,) = checkout.glob("src/*.egg-info/PKG-INFO")
    return message_from_string(file.read_text(encoding="utf-8"))


def run_python(code: str) -> str:
    return subprocess.check_output([sys.executable, "-W", "error", "-c", code], text=True)


def test_public_names_exist_and_are_in_the_reference() -> None:
    reference = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    for name in truenorm.__all__:
        assert hasattr(truenorm, name)
        assert name == "__version__" or f"truenorm.{name}" in reference
    assert truenorm.__all__ == sorted(truenorm.__all__)


@pytest.mark.parametrize("package", [truenorm, truenorm.verify])
def test_no_public_function_has_the_name_of_a_module(package: ModuleType) -> None:
    """A name is imported on first access only while no imported module has it."""
    assert package.__file__
    beside = {path.stem for path in Path(package.__file__).parent.iterdir()}
    functions = {name for name in package.__all__ if callable(getattr(package, name))}
    assert not functions & beside


def test_import_loads_nothing_heavy_and_starts_no_thread() -> None:
    heavy = [
        "flint", "ml_dtypes", "matplotlib", "typer", "rich", "torch", "mpi4py", "logging.config",
    ]  # fmt: skip
    loaded = run_python(
        "import sys, threading, truenorm;"
        f"print([name for name in {heavy} if name in sys.modules], threading.active_count())"
    )
    assert loaded.strip() == "[] 1"


def test_import_of_the_judge_loads_only_what_is_used() -> None:
    """``python -X importtime -c "import truenorm.verify"`` shows the time."""
    names = "print([name for name in sys.modules if name.startswith(('truenorm.', 'numpy'))]);"
    loaded = run_python(f"import sys, truenorm.verify as tv; {names} tv.verify; {names}")
    before, after = map(literal_eval, loaded.splitlines())
    assert before == ["truenorm.verify"]
    assert "numpy" in after
    others = ("recordings", "scores", "report")
    assert not {f"truenorm.verify.{name}" for name in others} & set(after)


def test_sdist_has_what_builds_tests_and_documents_and_no_more(checkout: Path) -> None:
    for name in (*IN_SDIST, *NOT_IN_SDIST):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).touch()
    command = [sys.executable, "setup.py", "--quiet", "egg_info"]
    subprocess.run(command, cwd=checkout, check=True)
    (manifest,) = checkout.glob("src/*.egg-info/SOURCES.txt")
    listed = set(manifest.read_text(encoding="utf-8").splitlines())
    assert {name for name in listed if ".egg-info/" not in name} == {*BUILD_FILES, *IN_SDIST}


def test_pages_and_examples_install_from_a_checkout() -> None:
    """No index has the package before its first release; a line about an index says so."""
    files = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.*")]
    index = re.compile(r"""pip install[^`#]*[\s"']truenorm\b(?!.* @ git\+)""")
    for file in files:
        if file.suffix in (".md", ".py", ".yml"):
            for line in file.read_text(encoding="utf-8").splitlines():
                assert "release" in line or not index.search(line), f"{file}: {line}"


def test_messages_name_extras_of_the_package() -> None:
    """Extras of an installed package are in its metadata: pip finds them without an index."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = "|".join([*project["optional-dependencies"], r"\{extra\}"])
    text = "".join(
        file.read_text(encoding="utf-8") for file in (ROOT / "src/truenorm").rglob("*.py")
    )
    commands = re.findall(r"pip install \W*truenorm.*", text)
    assert len(commands) > 5
    for command in commands:
        assert re.match(rf"pip install 'truenorm\[({extras})\]'", command), command


class TestLinksOfTheMetadata:
    ADDRESS = "https://example.org/truenorm"
    README = """# Norms
See [a page](docs/page.md#part) and `x[i](y)`, [elsewhere](https://example.com), [below](#below).

![A figure](docs/figure.svg)

```pycon
>>> kernels[0](x)
```
"""

    @pytest.mark.parametrize("address", [ADDRESS, f"{ADDRESS}/"])
    def test_they_are_absolute_with_the_address(self, checkout: Path, address: str) -> None:
        (checkout / "README.md").write_text(self.README, encoding="utf-8")
        expected = self.README.replace("(docs/page", f"({self.ADDRESS}/blob/HEAD/docs/page")
        expected = expected.replace("(docs/fig", f"({self.ADDRESS}/raw/HEAD/docs/fig")
        assert metadata(checkout, address).get_payload() == expected

    def test_they_are_plain_text_without_it(self, checkout: Path) -> None:
        (checkout / "README.md").write_text(self.README, encoding="utf-8")
        expected = self.README.replace("[a page](docs/page.md#part)", "a page")
        expected = expected.replace("![A figure](docs/figure.svg)", "A figure")
        assert metadata(checkout, "").get_payload() == expected

    @pytest.mark.parametrize("address", [ADDRESS, ""])
    def test_of_the_readme_they_lead_somewhere(self, checkout: Path, address: str) -> None:
        built = metadata(checkout, address)
        links = re.findall(r"\]\((.*?)\)", str(built.get_payload()))
        urls = dict(url.split(", ") for url in built.get_all("Project-URL", []))
        for link in (*links, *urls.values()):
            assert link.startswith(("https://", "#"))
            file = re.match(rf"{self.ADDRESS}/(?:blob|raw)/HEAD/([^#]*)", link)
            assert file is None or (ROOT / file[1]).exists()
        names = ["Source", "Documentation", "Changelog", "Issues"]
        assert list(urls) == (names if address else [])
        assert all(url.startswith(address) for url in urls.values())


def test_free_threaded_python_builds_no_core_and_says_why(checkout: Path) -> None:
    command = [sys.executable, "-c", FREE_THREADED_SETUP, "--quiet", "bdist_wheel"]
    printed = subprocess.check_output(command, cwd=checkout, text=True)
    assert "limited API of 3.11, which free-threaded Python does not have" in printed
    assert [path.name for path in checkout.glob("dist/*-py3-none-any.whl")]
