import os
import re
import shutil
import sys
import time
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import nox

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["lint", "types", "tests", "docs", "package"]
nox.options.error_on_external_run = True
nox.options.allow_parallel = True

PROJECT = nox.project.load_toml("pyproject.toml")
DEPENDENCIES = PROJECT["project"]["dependencies"]
OLDEST_NUMPY = "numpy==2.0.*"
# Sessions share cached answers and the compiled C core.
CACHE = {"TRUENORM_CACHE_DIR": str(Path(".nox/kept").resolve())}
BUILD = {"TRUENORM_BUILD_CACHE": str(Path(".nox/kept/core").resolve())}
if sys.platform == "linux":  # gcc, whose warnings are errors
    BUILD["CFLAGS"] = f"{os.environ.get('CFLAGS', '')} -Werror".lstrip()
# MSVC does not compile the core: on Windows it is absent unless another compiler is set up.
NATIVE = {"TRUENORM_REQUIRE_NATIVE": "" if sys.platform == "win32" else "1"}
PURE = {"TRUENORM_PURE": "1", "TRUENORM_REQUIRE_NATIVE": ""}
# lint and docs read the sources; nothing is built or installed.
FROM_SOURCE = {"PYTHONPATH": "src"}
# Each of two test processes has a core; threads of a library would take it from the other.
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
PARALLEL = ("-n", "2", "--dist", "worksteal")
WITH_SLOW = ("-m", "slow or not slow")
LOADED_FROM_ELSEWHERE = re.compile(
    r'<(script|link|img|iframe)\b[^>]*(src|href)="(https?:)?//[^>]*>'
)
# Compute, and compare the reason for which the C core is absent with the argument.
COMPUTE = """
import sys

import numpy as np

import truenorm as tn
from truenorm.kernels.native.availability import reason_for_absence

assert np.array_equal(tn.layer_norm(np.array([[1.0, 3.0]]), eps=0.0), [[-1.0, 1.0]])
assert reason_for_absence() == sys.argv[1], reason_for_absence()
"""
HAS_DEVICE = (
    "import truenorm as tn; print({each.name: each.usable for each in tn.backends()}['gpu'])"
)
# The first two need the C core. The others hardly use NumPy, or take minutes: the tests of all
# families of the promise run, and the examples in the judge's docstrings.
NOT_WITH_THE_OLDEST = (
    "src/truenorm/kernels/native",
    "tests/native",
    "tests/promise/test_bounds.py",
    "tests/promise/test_hard_cases.py",
    "tests/promise/test_oracle.py",
    "tests/verify",
    "tests/test_bench.py",
    "tests/test_demo.py",
    "tests/test_demo_report.py",
    "tests/benchmarks",
    "tests/cli",
    "tests/examples",
    "tests/repository",
    "tests/test_threads.py",
    "tests/tools",
    "tests/pytest_plugin",
    "tests/fibers",
    "tests/gpu",
)
# A third of the time with the oldest NumPy: the session slow runs them.
LEFT_TO_SLOW = (
    "tests/gradient_check",
    "docs/learn/gradient-check.md",
    "tests/test_exact.py",
    "tests/test_derivation.py",
    "tests/api/test_output.py::TestMemory",
    "tests/promise/test_promise.py::test_families[rms_norm",
    "tests/promise/test_promise.py::test_full_range[rms_norm",
    "tests/promise/test_promise.py::test_non_finite_entries",
    "tests/promise/test_promise.py::test_dx_cancels_down_to_eps",
    "tests/promise/test_invariance.py::test_threads",
    "tests/partials",
    "tests/test_doctor.py",
    "tests/test_cost.py",
    "tests/api/test_arrays.py::test_any_inputs",
    "docs/reference/grades.md",
)
GPU_TESTS = ("tests/gpu", "tests/test_doctor.py")
# Not copied to the folder of an installation without the core.
BUILT = ("*.egg-info", "*.pyd", "*.so", "__pycache__", "_build", "build", "dist", "environments")
EXAMPLES = Path("examples").resolve()
READERS = ("student", "kernel-engineer", "numpy-user", "gpu-owner", "contributor")
READERS_SECONDS = 300
# An RMSNorm on tensors that lacks eps.
WRONG_RMS_NORM = """
def rms_norm(x, weight, eps):
    return x * x.float().square().mean(-1, keepdim=True).rsqrt().to(x.dtype) * weight
"""


def install(session: nox.Session, group: str, *others: str, **variables: str) -> None:
    """Install a dependency group and other requirements in one call of pip."""
    requirements = nox.project.dependency_groups(PROJECT, group)
    session.install(*requirements, *others, env=BUILD | NATIVE | variables)


def install_pure(session: nox.Session, group: str, *others: str) -> None:
    """Install a group and the package without the C core, from a copy; change to the copy.

    An editable installation would find the extension that another session built in the checkout.
    """
    copy = Path(session.create_tmp()).resolve() / "checkout"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(".", copy, ignore=shutil.ignore_patterns(".*", *BUILT))
    session.chdir(copy)
    install(session, group, "-e", ".", *others, **PURE)


@nox.session
def lint(session: nox.Session) -> None:
    """Run every hook of .pre-commit-config.yaml on every file."""
    install(session, "lint")
    hooks = ["pre-commit", "run", "--all-files", "--show-diff-on-failure"]
    session.run(*hooks, external=True, env=FROM_SOURCE)


@nox.session
def types(session: nox.Session) -> None:
    """Check the types of the package, tests, benchmarks and examples."""
    install(session, "types", *DEPENDENCIES)
    session.run("mypy")


@nox.session
@nox.parametrize("numpy", ["newest", "oldest"], ids=["newest", "oldest"])
def tests(session: nox.Session, numpy: str) -> None:
    """Run the tests and the examples in docstrings and pages.

    With the newest NumPy for all backends, with the oldest for the package without the C core.
    """
    session.env.update(CACHE | ONE_THREAD)
    options: list[str] = []
    if numpy == "newest":
        install(session, "tests", "-e", ".")
    else:
        install_pure(session, "tests", OLDEST_NUMPY)
        options = [
            *(f"--ignore={path}" for path in NOT_WITH_THE_OLDEST),
            *(f"--deselect={path}" for path in LEFT_TO_SLOW),
        ]
    session.run("pytest", *PARALLEL, "--durations=25", *options, *session.posargs)


@nox.session
@nox.parametrize("numpy", ["newest", "oldest"], ids=["newest", "oldest"])
def slow(session: nox.Session, numpy: str) -> None:
    """Run also the tests that take minutes; with the newest NumPy, Hypothesis for long."""
    session.env.update(CACHE | ONE_THREAD)
    options: list[str] = []
    if numpy == "newest":
        install(session, "tests", "-e", ".")
        session.env["HYPOTHESIS_PROFILE"] = "slow"
    else:
        install_pure(session, "tests", OLDEST_NUMPY)
        options = [f"--ignore={path}" for path in NOT_WITH_THE_OLDEST]
    session.run("pytest", *WITH_SLOW, *PARALLEL, *options, *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the pages. Warnings and files loaded from other sites are errors."""
    install(session, "docs", *DEPENDENCIES)
    pages = Path("docs/_build/html")
    command = ["sphinx-build", "-W", "--keep-going", "-n", "docs", str(pages)]
    session.run(*command, env=FROM_SOURCE)
    for page in pages.rglob("*.html"):
        if match := LOADED_FROM_ELSEWHERE.search(page.read_text(encoding="utf-8")):
            session.error(f"{page} loads a file from another site: {match[0]}")


@nox.session
def package(session: nox.Session) -> None:
    """Build wheels and sdist, install each in a fresh environment, and follow the README.

    The pure wheel, and the sdist where there is no compiler, compute without the C core.
    """
    session.env.update(CACHE)
    install(session, "package")
    wheel = build_wheel(session)
    pure = fresh_environment(session, "pure", build_pure_wheel(session))
    compute_in(session, pure, absent="built with TRUENORM_PURE=1")
    sdist = str(next(Path("dist").glob("*.tar.gz")))
    no_compiler = fresh_environment(session, "no-compiler", sdist, CC="no-compiler")
    compute_in(session, no_compiler, absent="no-compiler was not found")
    fresh = fresh_environment(session, "package", wheel)
    if NATIVE["TRUENORM_REQUIRE_NATIVE"]:
        compute_in(session, fresh, absent="")
    follow_readme(session, fresh)
    # Without its extra, the command says what to install.
    run_in(session, fresh, "truenorm", "--help", success_codes=[2])
    run_in(session, fresh, "python", "-m", "truenorm", "--help", success_codes=[2])
    run_in(session, fresh, "python", "-m", "truenorm.doctor")
    run_in(session, fresh, "python", "-m", "truenorm.gradient_check", str(EXAMPLES / "pair.py"))
    install_in(session, fresh, f"{wheel}[verify]")
    buggy = str(EXAMPLES / "verify" / "numpy_check.py")
    run_in(session, fresh, "truenorm", "verify", buggy, success_codes=[1])


@nox.session
def newcomer(session: nox.Session) -> None:
    """From the wheel with all extras: the README, each command, and the example package."""
    install(session, "package")
    wheel = f"{build_wheel(session)}[verify]"
    fresh = fresh_environment(session, "newcomer", wheel)
    follow_readme(session, fresh)
    buggy, loose = EXAMPLES / "verify" / "numpy_check.py", EXAMPLES / "audit" / "test_norm.py"
    run_in(session, fresh, "truenorm", "verify", str(buggy), success_codes=[1])
    run_in(session, fresh, "truenorm", "verify", f"{buggy}:mended")
    install_in(session, fresh, "pytest")
    options = ["--replace", "norm_kernel:rms_norm", "--operation", "rms_norm"]
    run_in(session, fresh, "truenorm", "audit", str(loose), *options, success_codes=[1])
    folder = Path(session.create_tmp()).resolve() / "vectors"
    shutil.rmtree(folder, ignore_errors=True)
    for command in (
        ["vectors", str(folder), "--dtype", "float32"],
        ["gradcheck", str(EXAMPLES / "pair.py")],
        ["cost", "8", "1024", "4096"],
        ["demo"],
        ["bench", "2x128x64", "2x128x1024"],
        ["doctor", "--full"],
    ):
        run_in(session, fresh, "truenorm", *command)
    follow_example_package(session, fresh_environment(session, "example", wheel))


@nox.session
@nox.parametrize("name", READERS, ids=READERS)
def reader(session: nox.Session, name: str) -> None:
    """Follow one reader of the README from nothing; it must take at most five minutes.

    The wheel is built before the clock starts, except that a contributor builds the core.
    """
    folder = Path(session.create_tmp()).resolve()
    if name != "contributor":
        install(session, "package")
        wheel = build_wheel(session)
    start = time.monotonic()
    if name == "student":
        programs = fresh_environment(session, name, wheel)
        for page in ("worked-row", "derivation", "fuse"):
            follow_page(session, programs, f"docs/learn/{page}.md")
        run_in(session, programs, "python", "-m", "truenorm.gradient_check")
        install_in(session, programs, f"{wheel}[verify]")  # python-flint, for the method jet
        follow_page(session, programs, "docs/learn/gradient-check.md")
    elif name == "kernel-engineer":
        programs = fresh_environment(session, name, f"{wheel}[verify]")
        install_in(session, programs, *nox.project.dependency_groups(PROJECT, "torch")[:1])
        (folder / "wrong.py").write_text(WRONG_RMS_NORM)
        for target, code in (
            ("torch:torch.nn.functional.rms_norm", 0),
            (f"{folder / 'wrong.py'}:rms_norm", 1),
        ):
            command = ["verify", target, "--operation", "rms_norm"]
            run_in(session, programs, "truenorm", *command, success_codes=[code])
    elif name == "numpy-user":
        programs = fresh_environment(session, name, wheel)
        install_in(session, programs, "ml_dtypes")  # for bfloat16
        follow_page(session, programs, "docs/use/start.md")
    elif name == "gpu-owner":
        programs = fresh_environment(session, name, f"{wheel}[opencl,verify]")
        session.env.update(install_opencl(session))
        run_in(session, programs, "truenorm", "doctor", "--gpu")
    else:
        shutil.rmtree(folder / "checkout", ignore_errors=True)
        session.run("git", "clone", "--quiet", ".", str(folder / "checkout"), external=True)
        page = (folder / "checkout" / "CONTRIBUTING.md").read_text()
        if "\n## Add an operation\n" not in page:
            session.error("CONTRIBUTING.md does not say how to add an operation")
        commands = "\n".join(re.findall(r"^\$ (.*)", page, re.MULTILINE))
        with session.chdir(folder / "checkout"):
            session.run("bash", "-ec", commands, external=True)
    seconds = time.monotonic() - start
    session.log(f"{name}: {seconds:.0f} s")
    if seconds > READERS_SECONDS:
        session.error(
            f"the {name} needs {seconds:.0f} s; at most {READERS_SECONDS} s were expected"
        )


@nox.session
def torch(session: nox.Session) -> None:
    """Judge PyTorch kernels on the CPU, and a Triton kernel by its interpreter; run a report."""
    install(session, "torch", "-e", ".")
    session.env.update(CACHE | ONE_THREAD)
    tests = ["tests/pytorch", "tests/benchmarks/test_reports.py"]
    session.run("pytest", *PARALLEL, *tests, *session.posargs)


@nox.session
def cluster(session: nox.Session) -> None:
    """Normalize a Zarr array by Dask workers, one of which is killed; compare with one call."""
    install(session, "cluster", "-e", ".")
    session.run("pytest", "tests/cluster", *session.posargs)
    folder = Path(session.create_tmp()).resolve() / "arrays"
    shutil.rmtree(folder, ignore_errors=True)
    session.run("python", "examples/cluster/dask_zarr.py", str(folder))


@nox.session
def ranks(session: nox.Session) -> None:
    """Merge partials over ranks of an MPI from PyPI, and run the examples."""
    install(session, "ranks", "-e", ".[mpi]")
    # Elsewhere these tests are skipped where there is no MPI.
    session.env.update(CACHE, RANKS_NEED_MPI="1")
    session.run("pytest", "--durations=10", "tests/ranks", *session.posargs)


@nox.session
def engines(session: nox.Session) -> None:
    """Judge by Dask workers and MPI workers; compare the report with that of one process."""
    install(session, "engines", "-e", ".")
    session.env.update(CACHE)
    session.run("pytest", "tests/engines", *session.posargs)


@nox.session
@nox.parametrize("length", ["short", "long"], ids=["short", "long"])
def gpu(session: nox.Session, length: str) -> None:
    """Run the GPU kernels on an OpenCL device; without a GPU, PoCL runs them on the processor.

    The gate runs the short form. The long one adds slow tests, the tests of the interface and
    the judge.
    """
    install(session, "gpu", "-e", ".")
    # PoCL takes seconds to compile a kernel.
    compiled = {"POCL_CACHE_DIR": str(Path(CACHE["TRUENORM_CACHE_DIR"]) / "pocl")}
    session.env.update(CACHE | compiled, TRUENORM_NEEDS_GPU="1")
    if "True" not in str(session.run("python", "-c", HAS_DEVICE, silent=True)):
        session.env.update(install_opencl(session))
    options = WITH_SLOW if length == "long" else ()
    session.run("pytest", "--durations=10", *options, *GPU_TESTS, *session.posargs)
    if length == "long":
        session.run("pytest", "-q", "tests/api", env={"TRUENORM_TEST_BACKENDS": "gpu"})
        for name in ("layer_norm", "rms_norm", "layer_norm_of_arrays", "rms_norm_of_arrays"):
            subject = f"tests/gpu/on_device.py:{name}"
            session.run("truenorm", "verify", subject, "--require", "correct")


def follow_example_package(session: nox.Session, programs: Path) -> None:
    """Run the steps of the workflow in examples/package, and check its baseline."""
    install_in(session, programs, "pip")
    folder = Path(session.create_tmp()).resolve() / "package"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree("examples/package", folder)
    baseline = folder / "tests" / "known.json"
    before = baseline.read_text()
    workflow = (folder / ".github" / "workflows" / "norms.yml").read_text()
    update = "truenorm verify tests/test_judged.py:subject --baseline tests/known.json"
    variables = {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PIP_FIND_LINKS": str(Path("dist").resolve()),  # until there is a release
    }
    for step in [*re.findall(r"run: (.*)", workflow), f"{update} --update-baseline"]:
        with session.chdir(folder):
            session.run("bash", "-c", step, external=True, env=variables)
    if baseline.read_text() != before:
        session.error(f"{baseline} differs from what --update-baseline writes")


def build_wheel(session: nox.Session) -> str:
    """Build sdist and wheel with the C core, check both, and return the wheel."""
    shutil.rmtree("dist", ignore_errors=True)
    session.run("python", "-m", "build", env=BUILD | NATIVE)
    artefacts = sorted(str(path) for path in Path("dist").iterdir())
    session.run("twine", "check", "--strict", *artefacts)
    return checked_wheel(session, "cp311-abi3-*" if NATIVE["TRUENORM_REQUIRE_NATIVE"] else "*")


def build_pure_wheel(session: nox.Session) -> str:
    """Build the wheel without the C core from the sdist, check and return it.

    The address of the repository is known, as in a release, so all links must be absolute.
    """
    (sdist,) = Path("dist").glob("*.tar.gz")
    options = ["--no-deps", "--wheel-dir", "dist", str(sdist)]
    repository = {"TRUENORM_REPOSITORY": "https://example.org/truenorm"}
    session.run("python", "-m", "pip", "wheel", *options, env=PURE | repository)
    wheel = checked_wheel(session, "py3-none-any")
    with ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        text = archive.read(metadata).decode()
    if relative := re.search(r"\]\((?!https?://|#).*?\)", text):
        session.error(f"the description has a relative link: {relative[0]}")
    return wheel


def checked_wheel(session: nox.Session, tag: str) -> str:
    """Check the contents of the wheel with a tag, and return its path."""
    (wheel,) = Path("dist").glob(f"*-{tag}.whl")
    session.run("check-wheel-contents", str(wheel))
    return str(wheel)


def fresh_environment(session: nox.Session, name: str, requirement: str, **variables: str) -> Path:
    """Make an environment with a requirement; return its folder of programs."""
    fresh = Path(session.create_tmp()).resolve() / name
    # Installing pip takes longer than installing the wheel.
    session.run("python", "-m", "venv", "--clear", "--without-pip", str(fresh))
    programs = fresh / ("Scripts" if sys.platform == "win32" else "bin")
    install_in(session, programs, requirement, **variables)
    return programs


def install_in(session: nox.Session, programs: Path, requirement: str, **variables: str) -> None:
    """Install a requirement in an environment."""
    pip = ["python", "-m", "pip", "--python", str(programs / "python"), "install"]
    session.run(*pip, requirement, env=variables)


def run_in(
    session: nox.Session, programs: Path, program: str, *arguments: str, **options: Any
) -> None:
    """Run a program of an environment outside the checkout, so that it imports the wheel."""
    with session.chdir(programs.parent):
        session.run(str(programs / program), *arguments, external=True, **options)


def compute_in(session: nox.Session, programs: Path, absent: str) -> None:
    """Compute, and check the reason for which the C core is absent; empty if it is present."""
    reason = absent and f"the C core was not built: {absent}"
    run_in(session, programs, "python", "-W", "error", "-c", COMPUTE, reason)


def follow_readme(session: nox.Session, programs: Path) -> None:
    """Run the README, and check the gradients."""
    follow_page(session, programs, "README.md")
    run_in(session, programs, "python", "-W", "error", "-m", "truenorm.gradient_check")


def follow_page(session: nox.Session, programs: Path, page: str) -> None:
    """Run the examples of a page."""
    options = ["-o", "NORMALIZE_WHITESPACE", "-o", "ELLIPSIS", str(Path(page).resolve())]
    run_in(session, programs, "python", "-W", "error", "-m", "doctest", *options)


def install_opencl(session: nox.Session) -> dict[str, str]:
    """Install PoCL, and return the variables that make OpenCL find it."""
    folder = str(Path(session.create_tmp()).resolve() / "opencl")
    printed = str(session.run(".ci/install-opencl", folder, external=True, silent=True))
    return dict(re.findall(r"^(LD_LIBRARY_PATH|OCL_ICD_VENDORS)=(.*)$", printed, re.MULTILINE))
