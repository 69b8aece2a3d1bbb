"""The import contracts of pyproject.toml hold, and a planted violation of each is found."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


VIOLATIONS = [
    ("textbook", "torch", "Derivatives are derived by hand"),
    ("kernels/reference", "jax.numpy", "Derivatives are derived by hand"),
    # One module of the judge may import PyTorch, and no other.
    ("verify/running/torch_subject", "torch", "Derivatives are derived by hand"),
    ("verify/running/runners", "torch", "Derivatives are derived by hand"),
    ("verify/running/pytorch", "jax", "Derivatives are derived by hand"),
    ("partials/wire", "mpi4py", "Only truenorm.ranks imports MPI"),
    ("verify/judge", "mpi4py", "Only truenorm.ranks imports MPI"),
    ("ranks", "truenorm.cli", "Layers: "),
    ("verify/running/pytorch", "truenorm.verify.diagnosis", "Layers of verify"),
    ("gradient_check/extra", "truenorm.kernels", "The judge imports neither"),
    ("gradient_check/extra", "truenorm.api", "The judge imports neither"),
    ("verify/oracle", "truenorm.kernels", "The judge imports neither"),
    ("verify/oracle", "truenorm.api", "The judge imports neither"),
    ("verify/oracle", "truenorm.textbook", "verify imports only exact, tools and user_cache"),
    ("verify/inputs/families", "truenorm.verify.oracle", "Layers of verify"),
    ("verify/running/command", "truenorm.verify.grading.report", "Layers of verify"),
    ("verify/grading/checks", "truenorm.verify.report", "Layers of verify"),
    ("verify/grading/symptoms", "truenorm.verify.grading.findings", "Stages of grading"),
    ("verify/unplanned", "math", "Layers of verify"),
    ("verify/report/vectors", "truenorm.verify.operations", "know an operation only by"),
    ("exact", "truenorm.kernels", "Layers: "),
    ("tools/text", "truenorm.exact", "Layers: "),
    ("kernels/reference", "truenorm.api", "Layers: "),
    ("api/extra", "truenorm.verify", "Layers: "),
    ("api/extra", "truenorm.cli", "Layers: "),
    ("textbook", "truenorm.variance_forms", "Layers: "),
    ("unplanned", "math", "Layers: "),
    ("kernels/gpu/plan", "truenorm.kernels.reference", "Backends do not import each other"),
]


def copy_sources(folder: Path) -> Path:
    sources = shutil.ignore_patterns("__pycache__", "*.zip")
    shutil.copytree(ROOT / "src", folder / "src", ignore=sources)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


@pytest.fixture
def copied_sources(tmp_path: Path) -> Path:
    return copy_sources(tmp_path)


def check_imports(checkout: Path) -> tuple[int, str]:
    command = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    options = ["--config", str(checkout / "pyproject.toml"), "--no-cache"]
    finished = subprocess.run(
        [sys.executable, "-c", command, *options],
        cwd=checkout / "src",  # import-linter looks here first, so it reads the copy
        capture_output=True,
        text=True,
        check=False,
    )
    return finished.returncode, finished.stdout + finished.stderr


def test_contracts_hold(copied_sources: Path) -> None:
    code, report = check_imports(copied_sources)
    assert code == 0, report


def test_every_module_may_use_the_tools(copied_sources: Path) -> None:
    for module in ("verify/oracle", "gradient_check/extra", "exact", "cost"):
        with (copied_sources / "src" / "truenorm" / f"{module}.py").open("a") as file:
            file.write("\nimport truenorm.tools.text\n")
    code, report = check_imports(copied_sources)
    assert code == 0, report


@pytest.fixture(scope="module")
def sections(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Plant all violations at once; return the section of the report for each contract."""
    checkout = copy_sources(tmp_path_factory.mktemp("checkout"))
    for module, imported, _ in VIOLATIONS:
        with (checkout / "src" / "truenorm" / f"{module}.py").open("a") as file:
            file.write(f"\nimport {imported}\n")
    code, report = check_imports(checkout)
    assert code == 1
    # Each broken contract has a section under its underlined name.
    heads = re.split(r"^(.+)\n-+\n", report.partition("Broken contracts")[2], flags=re.MULTILINE)
    return dict(zip(heads[1::2], heads[2::2], strict=True))


@pytest.mark.parametrize(("module", "imported", "contract"), VIOLATIONS)
def test_violation_is_found(
    sections: dict[str, str], module: str, imported: str, contract: str
) -> None:
    """The report names the planted import itself, not a chain that contains it."""
    (section,) = (text for name, text in sections.items() if contract in name)
    importer = f"truenorm.{module.replace('/', '.')}"
    top = imported if imported.startswith("truenorm") else imported.partition(".")[0]
    named = rf"{importer}$" if "unplanned" in module else rf"{importer} -> {top} \(l\.\d+\)$"
    assert re.search(rf"^- +{named}", section, re.MULTILINE), section
