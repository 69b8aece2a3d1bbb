"""The example in C, built and run: the naive kernel fails, the stable ones pass."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from truenorm.verify import suite
from truenorm.verify.calls import Call
from truenorm.verify.judge import check
from truenorm.verify.operation import Case
from truenorm.verify.operations import OUTPUTS, RMS_NORM
from truenorm.verify.oracle import expected
from truenorm.verify.report.vectors import write_vectors
from truenorm.verify.running.command import CommandRunner
from truenorm.verify.running.loading import load
from truenorm.verify.subject import Subject

EXAMPLE = Path(__file__).parents[3] / "examples" / "c"
FLAGS = "-std=c99 -Wall -Wextra -pedantic -Werror -O2"
OFFSET = "float32-offset-1e7-4x67"

pytestmark = pytest.mark.skipif(
    None in (shutil.which("cc"), shutil.which("make")), reason="needs a C compiler and make"
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the six programs, with every warning an error."""
    folder = tmp_path_factory.mktemp("built") / "c"
    shutil.copytree(EXAMPLE, folder)
    command = ["make", "naive", "stable", "rms_norm", f"CFLAGS={FLAGS}"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=120)
    for suffix in ("", "_stable", "_rms_norm"):
        assert all((folder / f"{program}{suffix}").is_file() for program in ("check", "answer"))
    return folder


@pytest.fixture(scope="module")
def small() -> list[Case]:
    """Return the cases with cheap exact answers, which include every kind."""
    cases = [case for case in suite.cases("float32") if case.x.size <= 600]
    assert {case.kind for case in cases} == {case.kind for case in suite.cases("float32")}
    assert OFFSET in {case.name for case in cases}
    return cases


@pytest.fixture(scope="module")
def vectors(small: list[Case], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vectors") / "float32"
    write_vectors(folder, small)
    return folder


@pytest.fixture
def copied(vectors: Path, tmp_path: Path) -> Path:
    """Return a copy of the folder, for damage."""
    return shutil.copytree(vectors, tmp_path / "copied")


def run(program: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *map(str, arguments)], capture_output=True, text=True, timeout=300
    )


def test_naive_kernel_fails(built: Path, vectors: Path, small: list[Case]) -> None:
    done = run(built / "check", vectors)
    assert done.returncode == 1, done.stderr
    *failed, summary = done.stdout.splitlines()
    names = [line.split()[1].rstrip(":") for line in failed]
    assert OFFSET in names
    assert set(names) < {case.name for case in small}
    passed = len(small) - len(names)
    assert passed > len(small) // 4  # it is right on ordinary input
    assert summary == f"{passed} of {len(small)} cases pass, 0 of other types skipped"


def test_stable_kernel_passes(built: Path, vectors: Path, small: list[Case]) -> None:
    done = run(built / "check_stable", vectors)
    assert done.stdout == f"{len(small)} of {len(small)} cases pass, 0 of other types skipped\n"
    assert done.returncode == 0


@pytest.fixture(scope="module")
def rms_norm_vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the small cases of RMSNorm."""
    cases = suite.cases("float32", operation=RMS_NORM)
    folder = tmp_path_factory.mktemp("vectors") / "rms_norm"
    write_vectors(folder, [case for case in cases if case.x.size <= 1000])
    return folder


def test_rms_norm_passes(built: Path, rms_norm_vectors: Path) -> None:
    done = run(built / "check_rms_norm", rms_norm_vectors)
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith("cases pass, 0 of other types skipped\n")
    change(rms_norm_vectors / "float32-normal-4x3.expected", 2 * 12 + 1, 1e30)
    done = run(built / "check_rms_norm", rms_norm_vectors)
    assert "FAIL float32-normal-4x3: dgamma[1] is " in done.stdout
    assert done.stdout.count("FAIL") == 1


def test_cases_of_another_operation_fail(
    built: Path, vectors: Path, rms_norm_vectors: Path
) -> None:
    assert run(built / "check_rms_norm", vectors).returncode == 2
    assert run(built / "check_stable", rms_norm_vectors).returncode == 2


def test_rms_norm_as_a_command(built: Path) -> None:
    subject = Subject(command=[str(built / "answer_rms_norm")], operation=RMS_NORM)
    check(subject, suite.case("float32-g-along-x", operation=RMS_NORM))


@pytest.mark.slow(reason="a full verdict on a compiled kernel takes a minute")
def test_stable_kernel_passes_every_case(built: Path, tmp_path: Path) -> None:
    cases = suite.cases("float32")
    write_vectors(tmp_path / "all", cases)
    done = run(built / "check_stable", tmp_path / "all")
    assert done.returncode == 0, done.stdout


def test_answer_program(built: Path) -> None:
    """The results of the stable kernel are within the bounds."""
    runner = CommandRunner(Subject(command=[str(built / "answer_stable")]))
    for case in (suite.case(OFFSET), suite.case("float32-normal-4x3")):
        record = runner.run(case, Call())
        assert record.failure == ""
        answer = expected(case)
        for output in OUTPUTS:
            result, exact = record.results[output], answer.values[output]
            assert result is not None
            assert exact is not None
            error = np.abs(result.astype(np.float64) - exact.astype(np.float64))
            assert (error <= answer.allowed(output)).all()


def test_answer_program_fails_for_other_types(built: Path) -> None:
    runner = CommandRunner(Subject(command=[str(built / "answer")]))
    record = runner.run(suite.case("float64-normal-4x3"), Call())
    assert record.failure == "exit code 2: float64-normal-4x3: cannot be answered"


def test_subjects_of_the_check_file(built: Path) -> None:
    for name in ("subject", "stable", "rms_norm"):
        command = load(f"{built / 'c_kernel_check.py'}:{name}").command
        assert command is not None
        assert Path(command[0]).is_file()


def change(path: Path, k: int, number: float) -> None:
    """Replace number k of a file of float32."""
    numbers = np.fromfile(path, "<f4")
    numbers[k] = number
    numbers.tofile(path)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 1e30])
def test_non_finite_expected_values_are_compared(built: Path, copied: Path, number: float) -> None:
    """A finite result is wrong where NaN or an infinity is expected; `>` would not detect it."""
    name = "float32-normal-4x3"
    change(copied / f"{name}.expected", 5, number)
    done = run(built / "check_stable", copied)
    assert done.returncode == 1
    assert f"FAIL {name}: y[1][2] is " in done.stdout


def test_non_finite_results(built: Path, tmp_path: Path) -> None:
    """NaN in x makes its row NaN; an infinity in beta appears in its column with its sign."""
    case = suite.case("float32-normal-4x3")
    x, beta = case.x.copy(), case.beta.copy()
    x[1, 1], beta[2] = np.nan, -np.inf
    write_vectors(tmp_path / "special", [case.with_inputs(x=x, beta=beta)])
    written = np.fromfile(tmp_path / "special" / f"{case.name}.expected", "<f4")
    assert written[2] == -np.inf
    assert np.isnan(written[3:5]).all()
    assert run(built / "check_stable", tmp_path / "special").returncode == 0
    change(tmp_path / "special" / f"{case.name}.expected", 2, np.inf)
    assert (
        "y[0][2] is -inf, expected inf" in run(built / "check_stable", tmp_path / "special").stdout
    )


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("manifest.txt", "truenorm-vectors 2\n"),
        ("manifest.txt", "truenorm-vectors 1\n"),
        ("manifest.txt", "truenorm-vectors 1\nfloat32-normal-4x3 float32 4\n"),
        ("manifest.txt", "truenorm-vectors 1\nfloat32-normal-4x3 float32 4 0 0x1p-4\n"),
        ("manifest.txt", "truenorm-vectors 1\nfloat32-normal-4x3 float32 -4 3 0x1p-4\n"),
        ("manifest.txt", "truenorm-vectors 1\nno-such-case float32 4 3 0x1p-4\n"),
        ("manifest.txt", f"truenorm-vectors 1\nfloat32-normal-4x3 float32 {10**18} 3 0x1p-4\n"),
        ("manifest.txt", "truenorm-vectors 1\nfloat32-normal-4x3 float32 999999999 999999999 1\n"),
        ("manifest.txt", "truenorm-vectors 1\n" + 5000 * "x" + " float32 4 3 0x1p-4\n"),
        ("float32-normal-4x3.in", "short"),
        ("float32-normal-4x3.expected", ""),
        ("float32-normal-4x3.bound", "short"),
    ],
)
def test_damaged_folders_fail(built: Path, copied: Path, file: str, text: str) -> None:
    (copied / file).write_text(text)
    assert run(built / "check", copied).returncode == 2


def test_missing_folder(built: Path, tmp_path: Path) -> None:
    for program in ("check", "answer"):
        assert run(built / program).returncode == 2
        assert run(built / program, tmp_path).returncode == 2
