import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import nox

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["lint", "types", "tests", "docs", "package"]
nox.options.error_on_external_run = True
nox.options.allow_parallel = True

GROUPS = nox.project.load_toml("pyproject.toml")
OLDEST_NUMPY = "numpy==2.0.*"
LOADED_FROM_ELSEWHERE = re.compile(
    r'<(script|link|img|iframe)\b[^>]*(src|href)="(https?:)?//[^>]*>'
)
# Exact answers: what one session has computed, the others use.
KEPT = {"TRUENORM_CACHE_DIR": str(Path(".nox/kept").resolve())}
# An extension that one session has compiled, the others copy.
BUILD = {"TRUENORM_BUILD_CACHE": str(Path(".nox/kept/core").resolve())}
# MSVC does not compile the core: on Windows it is absent unless another compiler is set up.
NATIVE = {"TRUENORM_REQUIRE_NATIVE": "" if sys.platform == "win32" else "1"}
PURE = {"TRUENORM_PURE": "1", "TRUENORM_REQUIRE_NATIVE": ""}
DEPENDENCIES = GROUPS["project"]["dependencies"]
# For what reads the package and does not run it: nothing is built or installed.
FROM_SOURCE = {"PYTHONPATH": "src"}
# Compute, and compare the reason for which the C core is absent with the argument.
COMPUTE = """
import sys

import numpy as np

import truenorm as tn
from truenorm.kernels.native.availability import reason_for_absence

assert np.array_equal(tn.layer_norm(np.array([[1.0, 3.0]]), eps=0.0), [[-1.0, 1.0]])
assert reason_for_absence() == sys.argv[1], reason_for_absence()
"""
WITH_CORE = "cp311-abi3-*"
SEVERAL_PROCESSES = ("tests/ranks",)
POCL = "pocl-opencl-icd"
HAS_DEVICE = (
    "import truenorm as tn; print({each.name: each.usable for each in tn.backends()}['gpu'])"
)
ON_DEVICE = "tests/gpu/on_device.py"
# pytest would import the first two to look for examples and tests; they need the C core. The
# last six hardly meet NumPy. The others take minutes: of the promise, the tests of all families
# run, and not those of more elements by the same arithmetic; of the judge the examples show
# whether NumPy will do.
NOT_WITH_THE_OLDEST = (
    "src/truenorm/kernels/native",
    "tests/native",
    "tests/promise/bounds",
    "tests/promise/hard_cases",
    "tests/promise/test_oracle.py",
    "tests/verify",
    "tests/demo",
    "tests/bench",
    "tests/benchmarks",
    "tests/cli",
    "tests/examples",
    "tests/repository",
    "tests/threads",
    "tests/tools",
    "tests/pytest_plugin",
    "tests/fibers",
    "tests/gpu",
)
# With the oldest NumPy, a third of the time: examples in the package show whether it will do for
# the gradient check and the judge, others compute with integers and fractions, one fills memory,
# and inputs are drawn with the newest.
LEFT_TO_SLOW = (
    "tests/gradient_check",
    "docs/gradient-check.md",
    "tests/exact",
    "tests/test_derivation.py",
    "tests/ops/test_layer_norm.py::TestMemory",
    "tests/promise/test_rms_norm.py",
    "tests/partials",
    "tests/doctor",
    "tests/test_cost.py",
    "tests/ops/test_layouts.py::test_any_inputs",
    "docs/judging.md",
)
# Files and folders that are built.
BUILT = ("*.egg-info", "*.pyd", "*.so", "__pycache__", "_build", "build", "dist", "environments")
LOOSE = str(Path("examples/audit/test_norm.py").resolve())
BUGGY = str(Path("examples/verify/numpy_check.py").resolve())
PAIR = str(Path("examples/pair.py").resolve())


def install(session: nox.Session, group: str, *others: str, **variables: str) -> None:
    """Install a group of pyproject.toml, and others, at once: each call of pip takes seconds.

    The package is built with the C core unless the variables say otherwise.
    """
    wanted = nox.project.dependency_groups(GROUPS, group)
    session.install(*wanted, *others, env=BUILD | NATIVE | variables)


@nox.session
def lint(session: nox.Session) -> None:
    """Run every hook of .pre-commit-config.yaml on every file."""
    install(session, "lint")
    hooks = ["pre-commit", "run", "--all-files", "--show-diff-on-failure"]
    session.run(*hooks, external=True, env=FROM_SOURCE)


@nox.session
def types(session: nox.Session) -> None:
    """Check the types of the package, the tests and this file."""
    install(session, "types", *DEPENDENCIES)
    session.run("mypy")


@nox.session
@nox.parametrize("numpy", ["newest", "oldest"], ids=["newest", "oldest"])
def tests(session: nox.Session, numpy: str) -> None:
    """Run the tests and every example in docstrings, docs and README.

    With the newest NumPy for all backends; with the oldest for the package without the C core.
    """
    # Each of two processes has a core; threads of NumPy's own would take it from the other.
    session.env.update(KEPT, OPENBLAS_NUM_THREADS="1")
    options: list[str] = []
    if numpy == "newest":
        install(session, "tests", "-e", ".")
    else:
        install_pure(session, "tests", OLDEST_NUMPY)
        options = [
            *(f"--ignore={path}" for path in NOT_WITH_THE_OLDEST),
            *(f"--deselect={path}" for path in LEFT_TO_SLOW),
        ]
    # Who is done first takes tests from the other.
    session.run(
        "pytest", "-n", "2", "--dist", "worksteal", "--durations=25", *options, *session.posargs
    )


def install_pure(session: nox.Session, group: str, *others: str) -> None:
    """Install a group and the package without the C core, from a copy; change to the copy.

    An editable installation finds an extension that another session has built in the checkout.
    """
    copy = Path(session.create_tmp()).resolve() / "checkout"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(".", copy, ignore=shutil.ignore_patterns(".*", *BUILT))
    session.chdir(copy)
    install(session, group, "-e", ".", *others, **PURE)


@nox.session
@nox.parametrize("numpy", ["newest", "oldest"], ids=["newest", "oldest"])
def slow(session: nox.Session, numpy: str) -> None:
    """Run the tests that take minutes, and with the newest NumPy Hypothesis for long."""
    session.env.update(KEPT)
    options: list[str] = []
    if numpy == "newest":
        install(session, "tests", "-e", ".")
        session.env["HYPOTHESIS_PROFILE"] = "slow"
    else:
        install_pure(session, "tests", OLDEST_NUMPY)
        options = [f"--ignore={path}" for path in NOT_WITH_THE_OLDEST]
    session.run("pytest", "-m", "slow or not slow", "-n", "2", *options, *session.posargs)


@nox.session
def torch(session: nox.Session) -> None:
    """Judge kernels of PyTorch on the CPU, in every form, and one of Triton by its interpreter."""
    install(session, "torch", "-e", ".")
    # Each of two processes has a core; threads of PyTorch's own would take it from the other.
    session.env.update(KEPT, OMP_NUM_THREADS="1")
    session.run("pytest", "-n", "2", "--dist", "worksteal", "tests/pytorch", *session.posargs)


@nox.session
def cluster(session: nox.Session) -> None:
    """Normalize a Zarr array by Dask's workers, one of which is killed: the bytes of one call."""
    install(session, "cluster", "-e", ".")
    session.run("pytest", "tests/cluster", *session.posargs)
    folder = Path(session.create_tmp()).resolve() / "arrays"
    shutil.rmtree(folder, ignore_errors=True)
    session.run("python", "examples/cluster/dask_zarr.py", str(folder))


@nox.session
def ranks(session: nox.Session) -> None:
    """Start ranks by an MPI from PyPI: the same bytes on any number of them, and the examples."""
    install(session, "ranks", "-e", ".[mpi]")
    # Where there is no MPI these tests are skipped, but not here.
    session.env.update(KEPT, RANKS_NEED_MPI="1")
    session.run("pytest", "--durations=10", *SEVERAL_PROCESSES, *session.posargs)


@nox.session
@nox.parametrize("length", ["short", "long"], ids=["short", "long"])
def gpu(session: nox.Session, length: str) -> None:
    """Compute on an OpenCL device, which is the processor where there is no other.

    The short form is the gate's; the long one runs what takes minutes, and has the judge look.
    """
    install(session, "gpu", "-e", ".")
    # What PoCL compiles takes seconds a kernel, and is kept for later runs.
    kernels = {"POCL_CACHE_DIR": str(Path(KEPT["TRUENORM_CACHE_DIR"]) / "pocl")}
    session.env.update(KEPT, TRUENORM_NEEDS_GPU="1", **kernels)
    have_device(session)
    options = ["-m", "slow or not slow"] if length == "long" else []
    tested = ["tests/gpu", "tests/doctor/test_gpu.py"]
    session.run("pytest", "--durations=10", *options, *tested, *session.posargs)
    if length == "long":
        # What is asked of every backend.
        session.run("pytest", "-q", "tests/ops", env={"TRUENORM_TEST_BACKENDS": "gpu"})
        for name in ("layer_norm", "rms_norm", "layer_norm_of_arrays", "rms_norm_of_arrays"):
            session.run("truenorm", "verify", f"{ON_DEVICE}:{name}", "--require", "correct")


def have_device(session: nox.Session) -> None:
    """See that there is an OpenCL device: without one, install PoCL, or unpack it in a folder."""
    if "True" in str(session.run("python", "-c", HAS_DEVICE, silent=True)):
        return
    wanted = ["install", "--no-install-recommends", POCL]
    if os.geteuid() == 0:
        session.run("apt-get", "update", external=True)
        session.run("apt-get", "-y", *wanted, external=True)
        return
    folder = Path(session.create_tmp()).resolve() / "pocl"
    folder.mkdir(exist_ok=True)
    planned = session.run("apt-get", "-s", *wanted, external=True, silent=True)
    with session.chdir(folder):
        names = re.findall(r"^Inst (\S+)", str(planned), re.MULTILINE)
        session.run("apt-get", "download", *names, external=True)
        for package in folder.glob("*.deb"):
            session.run("dpkg", "-x", package.name, ".", external=True)
    libraries = sorted({str(each.parent) for each in folder.rglob("*.so*")})
    session.env["LD_LIBRARY_PATH"] = os.pathsep.join(libraries)
    session.env["OCL_ICD_VENDORS"] = str(folder / "etc/OpenCL/vendors")


@nox.session
def engines(session: nox.Session) -> None:
    """Judge by the workers of Dask and of MPI: the report of one process, to the byte."""
    install(session, "engines", "-e", ".")
    session.env.update(KEPT)
    session.run("pytest", "tests/engines", *session.posargs)


@nox.session
def perf(session: nox.Session) -> None:
    """Print what everything costs; nothing here passes or fails."""
    install(session, "tests", "-e", ".")
    commands = [
        ["benchmarks.reference"],
        ["benchmarks.engine", "--only", "large", "types", "small"],
        # The last section of the engine's, which is this command, would be the same again.
        ["benchmarks.family_cost", "--backend", "native"],
        ["benchmarks.memory"],
        ["benchmarks.cost_model"],
        ["benchmarks.scale.cost"],
    ]
    for command in commands:
        session.run("python", "-m", *command, *session.posargs)


@nox.session
def peers(session: nox.Session) -> None:
    """Print how fast others are, and how right; each has an environment, made by the commands."""
    install(session, "tests", "-e", ".")
    session.run("python", "-m", "benchmarks.peers", *session.posargs)
    for operation in ("layer_norm", "rms_norm"):
        session.run("python", "-m", "benchmarks.scoreboard", "--operation", operation)


@nox.session
def gpu_compilers(session: nox.Session) -> None:
    """Compile the GPU kernels by nvcc, NVRTC and clang-19; no GPU is needed."""
    install(session, "tests", "-e", ".")
    # It installs NVRTC, and ends here if one of the others is not there.
    session.run("python", "-m", "benchmarks.gpu", *session.posargs)
    session.run("pytest", "-m", "slow or not slow", "tests/benchmarks/test_gpu_compilers.py")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the pages; a warning is an error, and so is what they would load from elsewhere."""
    install(session, "docs", *DEPENDENCIES)
    pages = Path("docs/_build/html")
    command = ["sphinx-build", "-W", "--keep-going", "-n", "docs", str(pages)]
    session.run(*command, env=FROM_SOURCE)
    for page in pages.rglob("*.html"):
        if found := LOADED_FROM_ELSEWHERE.search(page.read_text(encoding="utf-8")):
            session.error(f"without a network {page} lacks {found[0]}")


@nox.session
def package(session: nox.Session) -> None:
    """Build wheels and sdist, then use the wheel as a newcomer would: bare, then with an extra.

    The pure wheel, and the sdist where there is no compiler, compute without the C core.
    """
    session.env.update(KEPT)
    install(session, "package")
    wheel = built_wheel(session)
    fresh = fresh_environment(session, "pure", built_pure_wheel(session))
    compute_in(session, fresh, absent="built with TRUENORM_PURE=1")
    sdist = str(next(Path("dist").glob("*.tar.gz")))
    fresh = fresh_environment(session, "no-compiler", sdist, CC="no-compiler")
    compute_in(session, fresh, absent="no-compiler was not found")
    fresh = fresh_environment(session, "package", wheel)
    if NATIVE["TRUENORM_REQUIRE_NATIVE"]:
        compute_in(session, fresh, absent="")
    follow_readme(session, fresh)
    # Without its extra, the command says what to install.
    run_in(session, fresh, "truenorm", "--help", success_codes=[2])
    run_in(session, fresh, "python", "-m", "truenorm", "--help", success_codes=[2])
    install_in(session, fresh, f"{wheel}[verify]")
    run_in(session, fresh, "truenorm", "verify", BUGGY, success_codes=[1])


@nox.session
def newcomer(session: nox.Session) -> None:
    """From nothing: the wheel with all extras, the README, and every command once."""
    install(session, "package")
    fresh = fresh_environment(session, "newcomer", f"{built_wheel(session)}[verify]")
    follow_readme(session, fresh)
    folder = Path(session.create_tmp()).resolve() / "vectors"
    shutil.rmtree(folder, ignore_errors=True)
    run_in(session, fresh, "truenorm", "verify", BUGGY, success_codes=[1])
    run_in(session, fresh, "truenorm", "verify", f"{BUGGY}:mended")
    install_in(session, fresh, "pytest")
    replaced = ["--replace", "norm_kernel:rms_norm", "--operation", "rms_norm"]
    run_in(session, fresh, "truenorm", "audit", LOOSE, *replaced, success_codes=[1])
    for command in (
        ["vectors", str(folder), "--dtype", "float32"],
        ["gradcheck", PAIR],
        ["cost", "8", "1024", "4096"],
        ["demo"],
        ["bench", "2x128x64", "2x128x1024"],
        ["doctor", "--full"],
    ):
        run_in(session, fresh, "truenorm", *command)


@nox.session
def example(session: nox.Session) -> None:
    """From nothing: the package under examples, by the steps of its own workflow."""
    install(session, "package")
    fresh = fresh_environment(session, "example", f"{built_wheel(session)}[verify]")
    install_in(session, fresh, "pip")
    folder = Path(session.create_tmp()).resolve() / "package"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree("examples/package", folder)
    known = folder / "tests" / "known.json"
    before = known.read_text()
    workflow = (folder / ".github" / "workflows" / "norms.yml").read_text()
    update = "truenorm verify tests/test_judged.py:subject --baseline tests/known.json"
    found_first = {
        "PATH": f"{fresh}{os.pathsep}{os.environ['PATH']}",
        "PIP_FIND_LINKS": str(Path("dist").resolve()),  # until there is a release
    }
    for step in [*re.findall(r"run: (.*)", workflow), f"{update} --update-baseline"]:
        with session.chdir(folder):
            session.run("bash", "-c", step, external=True, env=found_first)
    if known.read_text() != before:
        session.error(f"{known} is not what an update writes")


def built_wheel(session: nox.Session) -> str:
    """Build sdist and wheel with the C core, look at both, and return the wheel."""
    shutil.rmtree("dist", ignore_errors=True)
    session.run("python", "-m", "build", env=BUILD | NATIVE)
    artefacts = sorted(str(path) for path in Path("dist").iterdir())
    session.run("twine", "check", "--strict", *artefacts)
    return inspected(session, WITH_CORE if NATIVE["TRUENORM_REQUIRE_NATIVE"] else "*")


def built_pure_wheel(session: nox.Session) -> str:
    """Build the wheel without the C core from the sdist, and return it."""
    (sdist,) = Path("dist").glob("*.tar.gz")
    wanted = ["--no-deps", "--wheel-dir", "dist", str(sdist)]
    session.run("python", "-m", "pip", "wheel", *wanted, env=PURE)
    return inspected(session, "py3-none-any")


def inspected(session: nox.Session, tag: str) -> str:
    """Return the wheel with a tag, and look at its contents."""
    (wheel,) = Path("dist").glob(f"*-{tag}.whl")
    session.run("check-wheel-contents", str(wheel))
    return str(wheel)


def fresh_environment(session: nox.Session, name: str, requirement: str, **variables: str) -> Path:
    """Make an environment with a requirement and what it needs; return its folder of programs."""
    fresh = Path(session.create_tmp()).resolve() / name
    # To give it a pip of its own would take longer than to install the wheel.
    session.run("python", "-m", "venv", "--clear", "--without-pip", str(fresh))
    programs = fresh / ("Scripts" if sys.platform == "win32" else "bin")
    install_in(session, programs, requirement, **variables)
    return programs


def install_in(session: nox.Session, programs: Path, requirement: str, **variables: str) -> None:
    """Install a requirement, and what it needs, in an environment."""
    pip = ["python", "-m", "pip", "--python", str(programs / "python"), "install"]
    session.run(*pip, requirement, env=variables)


def run_in(
    session: nox.Session, programs: Path, program: str, *arguments: str, **options: Any
) -> None:
    """Run a program of an environment, away from the checkout: the wheel is to be imported."""
    with session.chdir(programs.parent):
        session.run(str(programs / program), *arguments, external=True, **options)


def compute_in(session: nox.Session, programs: Path, absent: str) -> None:
    """Compute, and check the reason for which the C core is absent; empty if it is there."""
    reason = absent and f"the C core was not built: {absent}"
    run_in(session, programs, "python", "-W", "error", "-c", COMPUTE, reason)


def follow_readme(session: nox.Session, programs: Path) -> None:
    """Run the README, and check the gradients."""
    options = ["-o", "NORMALIZE_WHITESPACE", "-o", "ELLIPSIS"]
    for command in (
        ["doctest", *options, str(Path("README.md").resolve())],
        ["truenorm.gradient_check"],
    ):
        run_in(session, programs, "python", "-W", "error", "-m", *command)
