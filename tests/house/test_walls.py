"""The import walls of docs/design stand: a planted violation of each is found."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


VIOLATIONS = [
    ("textbook", "torch", "Derivatives are derived by hand"),
    ("kernels/reference", "jax.numpy", "Derivatives are derived by hand"),
    # Of the judge, one module is exempt, and none beside it.
    ("verify/running/torch_subject", "torch", "Derivatives are derived by hand"),
    ("verify/running/in_process", "torch", "Derivatives are derived by hand"),
    ("verify/running/pytorch", "jax", "Derivatives are derived by hand"),
    ("partials/wire", "mpi4py", "one module imports it"),
    ("verify/collect", "mpi4py", "one module imports it"),
    ("verify/collect", "distributed", "nobody imports an engine"),
    ("ranks", "truenorm.cli", "Floors"),
    ("verify/running/pytorch", "truenorm.verify.diagnosis", "none imports one above it"),
    ("gradient_check/extra", "truenorm.kernels", "The judge imports neither"),
    ("gradient_check/extra", "truenorm.api", "The judge imports neither"),
    ("verify/oracle/expected", "truenorm.kernels", "The judge imports neither"),
    ("verify/oracle/expected", "truenorm.api", "The judge imports neither"),
    (
        "verify/oracle/expected",
        "truenorm.textbook",
        "verify imports only exact, tools and user_cache",
    ),
    ("verify/cases/families", "truenorm.verify.oracle", "none imports one above it"),
    ("verify/running/command", "truenorm.verify.grading.report", "none imports one above it"),
    ("verify/grading/checks", "truenorm.verify.report", "none imports one above it"),
    ("verify/judge", "truenorm.verify.audit", "none imports one above it"),
    ("verify/unplanned", "math", "none imports one above it"),
    ("verify/report/vectors", "truenorm.verify.operations", "know no operation but by"),
    ("exact", "truenorm.kernels", "Floors"),
    ("tools/text", "truenorm.exact", "Floors"),
    ("kernels/reference", "truenorm.api", "Floors"),
    ("api/extra", "truenorm.verify", "Floors"),
    ("api/extra", "truenorm.cli", "Floors"),
    ("textbook", "truenorm.variance_forms", "Floors"),
    ("unplanned", "math", "Floors"),
    ("kernels/gpu/plan", "truenorm.kernels.reference", "Backends do not import each other"),
]


def copy_house(folder: Path) -> Path:
    sources = shutil.ignore_patterns("__pycache__", "*.zip")
    shutil.copytree(ROOT / "src", folder / "src", ignore=sources)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


@pytest.fixture
def copied_house(tmp_path: Path) -> Path:
    return copy_house(tmp_path)


def check_imports(house: Path) -> tuple[int, str]:
    command = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    options = ["--config", str(house / "pyproject.toml"), "--no-cache"]
    finished = subprocess.run(
        [sys.executable, "-c", command, *options],
        cwd=house / "src",  # import-linter looks here first, so it reads the copy
        capture_output=True,
        text=True,
        check=False,
    )
    return finished.returncode, finished.stdout + finished.stderr


def test_the_house_as_it_is(copied_house: Path) -> None:
    code, report = check_imports(copied_house)
    assert code == 0, report


def test_every_room_may_use_the_tools(copied_house: Path) -> None:
    for room in ("verify/oracle/expected", "gradient_check/extra", "exact", "cost/model"):
        with (copied_house / "src" / "truenorm" / f"{room}.py").open("a") as file:
            file.write("\nimport truenorm.tools.text\n")
    code, report = check_imports(copied_house)
    assert code == 0, report


@pytest.fixture(scope="module")
def sections(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Plant all violations at once; return what is said of each wall."""
    house = copy_house(tmp_path_factory.mktemp("house"))
    for module, imported, _ in VIOLATIONS:
        with (house / "src" / "truenorm" / f"{module}.py").open("a") as file:
            file.write(f"\nimport {imported}\n")
    code, report = check_imports(house)
    assert code == 1
    # Under its underlined name each broken wall has a section.
    heads = re.split(r"^(.+)\n-+\n", report.partition("Broken contracts")[2], flags=re.MULTILINE)
    return dict(zip(heads[1::2], heads[2::2], strict=True))


@pytest.mark.parametrize(("module", "imported", "wall"), VIOLATIONS)
def test_violation_is_found(
    sections: dict[str, str], module: str, imported: str, wall: str
) -> None:
    """Named as what it is, not as a way to another one."""
    (said,) = (text for name, text in sections.items() if wall in name)
    importer = f"truenorm.{module.replace('/', '.')}"
    top = imported if imported.startswith("truenorm") else imported.partition(".")[0]
    named = rf"{importer}$" if "unplanned" in module else rf"{importer} -> {top} \(l\.\d+\)$"
    assert re.search(rf"^- +{named}", said, re.MULTILINE), said
