import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

import nox

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["lint", "types", "tests", "docs", "package"]
nox.options.error_on_external_run = True
nox.options.allow_parallel = True

PROJECT = nox.project.load_toml("pyproject.toml")
DEPENDENCIES = PROJECT["project"]["dependencies"]
OLDEST_NUMPY = "numpy==2.0.*"
# The Pythons that are tested, and the oldest NumPy from 2.0 that has a wheel for each.
PYTHONS = {"3.11": "2.0.*", "3.12": "2.0.*", "3.13": "2.1.*", "3.14": "2.3.2", "3.14t": "2.3.2"}
# Reasons for which the C core is absent.
PURE_WHEEL = "built with TRUENORM_PURE=1"
FREE_THREADED = (
    "the C core needs the limited API of 3.11, which free-threaded Python does not have"
)
PYTHONS_TESTS = ("tests/fast/api", "tests/full/native", "tests/full/promise/test_invariance.py")
# Sessions share cached answers and the compiled C core.
CACHE = {"TRUENORM_CACHE_DIR": str(Path(".nox/kept").resolve())}
BUILD = {
    "TRUENORM_BUILD_CACHE": os.environ.get(
        "TRUENORM_BUILD_CACHE", str(Path(".nox/kept/core").resolve())
    )
}
if sys.platform == "linux":  # gcc, whose warnings are errors
    BUILD["CFLAGS"] = f"{os.environ.get('CFLAGS', '')} -Werror".lstrip()
# MSVC does not compile the core: on Windows it is absent unless another compiler is set up.
NATIVE = {"TRUENORM_REQUIRE_NATIVE": "" if sys.platform == "win32" else "1"}
# A release sets the address; another one shows that links become absolute.
REPOSITORY = {
    "TRUENORM_REPOSITORY": os.environ.get("TRUENORM_REPOSITORY", "https://example.org/truenorm")
}
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
# The gate: tests that answer first, and the examples in docstrings and pages.
FAST_TESTS = ("tests/fast", "src", "docs", "README.md")
# With the oldest NumPy and without the C core.
PURE_TESTS = ("tests/fast", "src/truenorm/api", "src/truenorm/partials", "docs/use", "README.md")
# The gate runs these with the newest NumPy alone, the nightly with the oldest too.
NIGHTLY_IF_PURE = tuple(
    f"--ignore=tests/fast/{each}" for each in ("cli", "gradient_check", "verify")
)
GPU_TESTS = ("tests/needs_gpu", "tests/full/test_doctor.py")
# Not copied to the folder of an installation without the core: what was built, and the rules of
# the repository, which the gate checks once.
NOT_COPIED = (
    *("*.egg-info", "*.pyd", "*.so", "__pycache__", "_build", "build", "dist", "environments"),
    "repository",
)
EXAMPLES = Path("examples").resolve()
# Commands that a release must run, and their exit codes, by the folder in examples. A test
# compares this list and the next with the files.
EXAMPLE_COMMANDS = (
    (".", "python from_scratch.py", 0),
    (".", "python layer.py", 0),
    (".", "python group_norm.py", 0),
    (".", "python torch_layer.py", 0),
    (".", "python transformer.py --steps 20", 0),
    (".", "python llama.py --steps 20", 0),
    (".", "truenorm gradcheck pair.py", 0),
    ("c", "make naive stable rms_norm", 0),
    ("c", "truenorm verify c_kernel_check.py:subject", 1),
    ("c", "truenorm verify c_kernel_check.py:stable", 0),
    ("c", "truenorm verify c_kernel_check.py:rms_norm", 0),
    ("ranks", "python torch_allreduce.py 3", 0),
    ("verify", "truenorm verify numpy_check.py", 1),
    ("verify", "truenorm verify numpy_check.py:mended", 0),
    ("verify", "truenorm verify rms_norm_check.py", 1),
    ("verify", "python -m pytest -q test_my_kernel.py", 0),
    ("verify", "truenorm verify torch_check.py --dtype float32", 1),
    ("verify", "truenorm verify serving_check.py:serve", 1),
    ("verify", "truenorm compare serving_check.py:train serving_check.py:pinned", 1),
    ("verify", "truenorm verify quantized_check.py --recipe late/T", 1),
    ("verify", "truenorm verify quantized_check.py:mended --recipe late/T", 0),
)
# Files that other files import, and files that need more than PyTorch: sessions run those.
OTHER_EXAMPLES = {
    "cluster/dask_zarr.py": "session cluster",
    "jax_layer.py": "session jax",
    "ranks/data_parallel.py": "session ranks",
    "ranks/mpi_allreduce.py": "session ranks",
    "ranks/sequences.py": "imported by data_parallel.py",
    "ranks/sharded_features.py": "session ranks",
    "remote/modal_run.py": "not run: it needs an account",
    "remote/rms_norm.py": "session torch",
    "verify/count_bytes.py": "session torch",
    "verify/triton_check.py": "session torch",
    "verify/triton_layer_norm.py": "session torch",
    "verify/triton_quantized_check.py": "session torch",
}
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
    shutil.copytree(".", copy, ignore=shutil.ignore_patterns(".*", *NOT_COPIED))
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
    """Run the fast tests and the examples in docstrings and pages, or what arguments name.

    With the newest NumPy for all backends. With the oldest, those of numbers without the C core.
    """
    session.env.update(CACHE | ONE_THREAD)
    if numpy == "newest":
        install(session, "tests", "-e", ".")
        chosen: tuple[str, ...] = FAST_TESTS
    else:
        install_pure(session, "tests", OLDEST_NUMPY)
        chosen = (*PURE_TESTS, *NIGHTLY_IF_PURE)
    session.run("pytest", *PARALLEL, "--durations=25", *(session.posargs or chosen))


@nox.session
@nox.parametrize("numpy", ["newest", "oldest"], ids=["newest", "oldest"])
def slow(session: nox.Session, numpy: str) -> None:
    """Run all tests, slow ones too; with the newest NumPy, Hypothesis for long.

    With the oldest, those of numbers without the C core.
    """
    session.env.update(CACHE | ONE_THREAD)
    if numpy == "newest":
        install(session, "tests", "-e", ".")
        session.env["HYPOTHESIS_PROFILE"] = "slow"
        chosen: tuple[str, ...] = ()
    else:
        install_pure(session, "tests", OLDEST_NUMPY)
        chosen = (*PURE_TESTS, "tests/full/promise", "tests/full/gradient_check")
    session.run("pytest", *WITH_SLOW, *PARALLEL, *chosen, *session.posargs)


@nox.session
def faults(session: nox.Session) -> None:
    """Plant faults in the sources, one at a time: the fast tests must find five of six."""
    install(session, "tests", "-e", ".")
    session.run("python", "-m", "benchmarks.faults", *session.posargs, env=CACHE)


@nox.session
def compilers(session: nox.Session) -> None:
    """Compile each form of the GPU kernels with nvcc and clang, if they are there."""
    install(session, "tests", "-e", ".")
    session.run("pytest", *WITH_SLOW, *PARALLEL, "tests/needs_nvcc", *session.posargs)


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


class Step(NamedTuple):
    """A step of a proof."""

    name: str
    shows: str
    run: Callable[[nox.Session], None]


def run_steps(session: nox.Session, steps: Sequence[Step]) -> None:
    """Run steps up to the first that fails, and print a table of all."""
    install(session, "package")
    session.env.update(CACHE)
    results = {step.name: ("not run", 0.0) for step in steps}
    try:
        for step in steps:
            start, result = time.monotonic(), "FAILED"
            try:
                step.run(session)
                result = "passed"
            finally:
                results[step.name] = result, time.monotonic() - start
    finally:
        session.log(f"{'step':15}  {'what it shows':51}  result   seconds")
        for step in steps:
            result, seconds = results[step.name]
            session.log(f"{step.name:15}  {step.shows:51}  {result:7}  {seconds:7.0f}")


def prove_wheel(session: nox.Session) -> None:
    """Build sdist and wheel, and follow the README with nothing but NumPy."""
    fresh = fresh_environment(session, "wheel", build_wheel(session))
    if NATIVE["TRUENORM_REQUIRE_NATIVE"]:
        compute_in(session, fresh, absent="")
    follow_readme(session, fresh)
    # Without its extra, the command says what to install.
    run_in(session, fresh, "truenorm", "--help", success_codes=[2])
    run_in(session, fresh, "python", "-m", "truenorm", "--help", success_codes=[2])
    run_in(session, fresh, "python", "-m", "truenorm.doctor")
    run_in(session, fresh, "python", "-m", "truenorm.gradient_check", str(EXAMPLES / "pair.py"))


def prove_pure_wheel(session: nox.Session) -> None:
    """Compute without the C core."""
    pure = fresh_environment(session, "pure", build_pure_wheel(session))
    compute_in(session, pure, absent=PURE_WHEEL)


def prove_sdist(session: nox.Session) -> None:
    """Install from the sdist where there is no compiler."""
    (sdist,) = Path("dist").glob("*.tar.gz")
    fresh = fresh_environment(session, "sdist", str(sdist), CC="no-compiler")
    compute_in(session, fresh, absent="no-compiler was not found")


def prove_judge(session: nox.Session) -> None:
    """Install the extra, and find the bugs of an example."""
    fresh = fresh_environment(session, "judge", built_wheel())
    # As messages say: pip takes the installed truenorm, also if no index has it.
    install_in(session, fresh, "truenorm[verify]")
    buggy = str(EXAMPLES / "verify" / "numpy_check.py")
    run_in(session, fresh, "truenorm", "verify", buggy, success_codes=[1])


def prove_commands(session: nox.Session) -> None:
    """Run the commands that no example runs."""
    folder = Path(session.create_tmp()).resolve() / "vectors"
    shutil.rmtree(folder, ignore_errors=True)
    for command in (
        ["vectors", str(folder), "--dtype", "float32"],
        ["doctor", "--full"],
    ):
        run_in(session, environment(session, "judge"), "truenorm", *command)


def prove_torch(session: nox.Session) -> None:
    """Judge the norms of PyTorch, on its CPU build."""
    programs = environment(session, "judge")
    install_in(session, programs, torch_requirement())
    # Of layer_norm, docs/reports/pytorch-layer-norm.md has the defects.
    for norm, code in (("layer_norm", 1), ("rms_norm", 0)):
        command = ["verify", f"torch:torch.nn.functional.{norm}", "--operation", norm]
        run_in(session, programs, "truenorm", *command, success_codes=[code])


def prove_examples(session: nox.Session) -> None:
    """Run every example that needs no more than PyTorch, in a copy."""
    programs = environment(session, "judge")
    install_in(session, programs, "pytest")
    copy = Path(session.create_tmp()).resolve() / "examples"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(EXAMPLES, copy, ignore=shutil.ignore_patterns("__pycache__", "package"))
    for folder, command, code in EXAMPLE_COMMANDS:
        program, *arguments = command.split()
        located = shutil.which(program, path=f"{programs}{os.pathsep}{os.environ['PATH']}")
        with session.chdir(copy / folder):
            session.run(located or program, *arguments, external=True, success_codes=[code])


def prove_example_package(session: nox.Session) -> None:
    """Follow the workflow of a project with the judge in its CI."""
    follow_example_package(session, fresh_environment(session, "project", "pip"))


PACKAGE_STEPS = (
    Step("wheel", "sdist and wheel build; the C core computes; README", prove_wheel),
    Step("pure wheel", "builds from the sdist; NumPy computes", prove_pure_wheel),
    Step("sdist", "installs without a compiler; NumPy computes", prove_sdist),
    Step("judge", "with its extra, it finds planted bugs", prove_judge),
)
RELEASE_STEPS = (
    *PACKAGE_STEPS,
    Step("commands", "each command runs; doctor --full finds no problem", prove_commands),
    Step("PyTorch", "layer_norm fails by known defects, rms_norm passes", prove_torch),
    Step("examples", "every file that needs no more than PyTorch runs", prove_examples),
    Step("example package", "a project tests and judges its norm", prove_example_package),
)


@nox.session
def package(session: nox.Session) -> None:
    """Build wheels and sdist, install each in a fresh environment, and follow the README.

    The pure wheel, and the sdist where there is no compiler, compute without the C core.
    """
    run_steps(session, PACKAGE_STEPS)


@nox.session
def release(session: nox.Session) -> None:
    """Prove a release: the session package, then every command, PyTorch and the examples."""
    run_steps(session, RELEASE_STEPS)


@nox.session
def wheels(session: nox.Session) -> None:
    """Build in dist what a release has for this machine, and print the size of each part.

    The C core must use the limited API only. On Linux, the tag of its wheel becomes that of the
    oldest glibc that has its symbols.
    """
    install(session, "wheels")
    wheel = build_wheel(session)
    if sys.platform == "linux":
        session.run("auditwheel", "repair", "--wheel-dir", "dist", wheel)
        Path(wheel).unlink()
        wheel = built_wheel()
    session.run("abi3audit", "--strict", wheel)
    for file in (wheel, build_pure_wheel(session)):
        session.run("python", "-m", "benchmarks.size", "--wheel", file)


@nox.session(python=list(PYTHONS), requires=["wheels"])
@nox.parametrize("numpy", ["newest", "oldest"], ids=["newest", "oldest"])
def pythons(session: nox.Session, numpy: str) -> None:
    """Install what pip chooses in dist; compute, examine the installation, and run tests.

    For free-threaded Python pip chooses the wheel without the C core, and the sdist builds none.
    """
    python = str(session.python)
    programs = Path(session.bin)
    requirement = f"numpy=={PYTHONS[python]}" if numpy == "oldest" else "numpy"
    session.install("--only-binary", "numpy", requirement)
    if python.endswith("t"):
        session.install("--no-deps", str(next(Path("dist").glob("*.tar.gz"))))
        compute_in(session, programs, absent=FREE_THREADED)
    session.install(
        "--force-reinstall", "--no-index", "--no-deps", "--find-links", "dist", "truenorm"
    )
    compute_in(session, programs, absent=PURE_WHEEL if python.endswith("t") else "")
    run_in(session, programs, "python", "-W", "error", "-m", "truenorm.doctor")
    run_in(session, programs, "python", "-W", "error", "-m", "truenorm.gradient_check")
    install(session, "tests", requirement)
    session.env.update(CACHE | ONE_THREAD)
    session.run("pytest", *PARALLEL, *PYTHONS_TESTS, *session.posargs)


@nox.session
def coverage(session: nox.Session) -> None:
    """Measure what the tests run, and write HTML, XML and JSON to the folder coverage.

    Child processes are measured too. The figure is for reading; nothing depends on it.
    """
    install(session, "coverage", "-e", ".")
    session.env.update(CACHE | ONE_THREAD)
    shutil.rmtree("coverage", ignore_errors=True)
    session.run("coverage", "run", "-m", "pytest", *PARALLEL, *session.posargs)
    session.run("coverage", "combine", "--quiet")
    for form in ("html", "xml", "json"):
        session.run("coverage", form, "--quiet")
    session.run("coverage", "report", "--format=total")


def be_student(session: nox.Session) -> None:
    """Learn the derivation, then check gradients."""
    wheel = built_wheel()
    programs = fresh_environment(session, "student", wheel)
    for page in ("worked-row", "derivation", "fuse"):
        follow_page(session, programs, f"docs/learn/{page}.md")
    run_in(session, programs, "python", "-m", "truenorm.gradient_check")
    install_in(session, programs, f"{wheel}[verify]")  # python-flint, for the method jet
    follow_page(session, programs, "docs/learn/gradient-check.md")


def be_kernel_engineer(session: nox.Session) -> None:
    """Judge a right and a wrong kernel of PyTorch."""
    programs = fresh_environment(session, "kernel-engineer", f"{built_wheel()}[verify]")
    install_in(session, programs, torch_requirement())
    wrong = Path(session.create_tmp()).resolve() / "wrong.py"
    wrong.write_text(WRONG_RMS_NORM)
    for target, code in (("torch:torch.nn.functional.rms_norm", 0), (f"{wrong}:rms_norm", 1)):
        command = ["verify", target, "--operation", "rms_norm"]
        run_in(session, programs, "truenorm", *command, success_codes=[code])


def be_numpy_user(session: nox.Session) -> None:
    """Compute both norms."""
    programs = fresh_environment(session, "numpy-user", built_wheel())
    install_in(session, programs, "ml_dtypes")  # for bfloat16
    follow_page(session, programs, "docs/use/start.md")


def be_gpu_owner(session: nox.Session) -> None:
    """Examine an OpenCL device, which is PoCL."""
    programs = fresh_environment(session, "gpu-owner", f"{built_wheel()}[opencl,verify]")
    session.env.update(install_opencl(session))
    run_in(session, programs, "truenorm", "doctor", "--gpu")


def be_contributor(session: nox.Session) -> None:
    """Run the commands of CONTRIBUTING.md in a clone."""
    checkout = Path(session.create_tmp()).resolve() / "checkout"
    shutil.rmtree(checkout, ignore_errors=True)
    session.run("git", "clone", "--quiet", ".", str(checkout), external=True)
    page = (checkout / "CONTRIBUTING.md").read_text()
    if "\n## Add an operation\n" not in page:
        session.error("CONTRIBUTING.md does not say how to add an operation")
    commands = "\n".join(re.findall(r"^\$ (.*)", page, re.MULTILINE))
    with session.chdir(checkout):
        session.run("bash", "-ec", commands, external=True)


READERS = {
    "student": be_student,
    "kernel-engineer": be_kernel_engineer,
    "numpy-user": be_numpy_user,
    "gpu-owner": be_gpu_owner,
    "contributor": be_contributor,
}


@nox.session
@nox.parametrize("name", list(READERS), ids=list(READERS))
def reader(session: nox.Session, name: str) -> None:
    """Follow one reader of the README from nothing; it must take at most five minutes.

    The wheel is built before the clock starts, except that a contributor builds the core.
    """
    if name != "contributor":
        install(session, "package")
        build_wheel(session)
    start = time.monotonic()
    READERS[name](session)
    seconds = time.monotonic() - start
    session.log(f"{name}: {seconds:.0f} s")
    if seconds > READERS_SECONDS:
        session.error(
            f"the {name} needs {seconds:.0f} s; at most {READERS_SECONDS} s were expected"
        )


@nox.session
def torch(session: nox.Session) -> None:
    """Judge PyTorch kernels on the CPU, Triton's by its interpreter; test layers, run a report."""
    install(session, "torch", "-e", ".")
    session.env.update(CACHE | ONE_THREAD)
    tests = ["tests/needs_torch", "tests/full/benchmarks/test_reports.py"]
    session.run("pytest", *PARALLEL, *tests, *session.posargs)


@nox.session
def jax(session: nox.Session) -> None:
    """Run the example with norms for JAX on the CPU, and a report."""
    install(session, "jax", "-e", ".")
    session.env.update(CACHE | ONE_THREAD)
    tests = ["tests/needs_jax", "tests/full/benchmarks/test_reports.py"]
    session.run("pytest", *tests, *session.posargs)


@nox.session
def reproducers(session: nox.Session) -> None:
    """Run every reproducer of docs/judge/scoreboard.md with its package alone."""
    install(session, "tests", "-e", ".")
    session.run("python", "-m", "benchmarks.world", "--reproduce", *session.posargs)


@nox.session
def cluster(session: nox.Session) -> None:
    """Normalize a Zarr array by Dask workers, one of which is killed; compare with one call."""
    install(session, "cluster", "-e", ".")
    session.run("pytest", "tests/needs_cluster", *session.posargs)
    folder = Path(session.create_tmp()).resolve() / "arrays"
    shutil.rmtree(folder, ignore_errors=True)
    session.run("python", "examples/cluster/dask_zarr.py", str(folder))


@nox.session
def ranks(session: nox.Session) -> None:
    """Merge partials over ranks of an MPI from PyPI, and run the examples."""
    install(session, "ranks", "-e", ".[mpi]")
    # Elsewhere these tests are skipped where there is no MPI.
    session.env.update(CACHE, RANKS_NEED_MPI="1")
    session.run("pytest", "--durations=10", "tests/needs_mpi", *session.posargs)


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
        session.run("pytest", "-q", "tests/fast/api", env={"TRUENORM_TEST_BACKENDS": "gpu"})
        for name in ("layer_norm", "rms_norm", "layer_norm_of_arrays", "rms_norm_of_arrays"):
            subject = f"tests/needs_gpu/on_device.py:{name}"
            session.run("truenorm", "verify", subject, "--require", "correct")


def follow_example_package(session: nox.Session, programs: Path) -> None:
    """Run the steps of the workflow in examples/package, and check its baseline."""
    folder = Path(session.create_tmp()).resolve() / "package"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree("examples/package", folder)
    baseline = folder / "tests" / "known.json"
    before = baseline.read_text()
    workflow = (folder / ".github" / "workflows" / "norms.yml").read_text()
    update = "truenorm verify tests/test_judged.py:subject --baseline tests/known.json"
    variables = {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "TRUENORM_PURE": "1",
        # In place of the repository on GitHub, this one: its last commit is installed.
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{Path.cwd().as_uri()}.insteadOf",
        "GIT_CONFIG_VALUE_0": "https://github.com/OWNER/truenorm",
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
    session.run("check-wheel-contents", built_wheel())
    return built_wheel()


def built_wheel() -> str:
    """Return the wheel that `build_wheel` built."""
    tag = "cp311-abi3-*" if NATIVE["TRUENORM_REQUIRE_NATIVE"] else "*"
    return str(min(Path("dist").glob(f"*-{tag}.whl")))  # a pure one is the last


def build_pure_wheel(session: nox.Session) -> str:
    """Build the wheel without the C core from the sdist, check and return it.

    The address of the repository is known, as in a release, so all links must be absolute.
    """
    (sdist,) = Path("dist").glob("*.tar.gz")
    options = ["--no-deps", "--wheel-dir", "dist", str(sdist)]
    session.run("python", "-m", "pip", "wheel", *options, env=PURE | REPOSITORY)
    (wheel,) = Path("dist").glob("*-py3-none-any.whl")
    session.run("check-wheel-contents", str(wheel))
    with ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        text = archive.read(metadata).decode()
    if relative := re.search(r"\]\((?!https?://|#).*?\)", text):
        session.error(f"the description has a relative link: {relative[0]}")
    return str(wheel)


def fresh_environment(session: nox.Session, name: str, requirement: str, **variables: str) -> Path:
    """Make an environment with a requirement; return its folder of programs."""
    programs = environment(session, name)
    # Installing pip takes longer than installing the wheel.
    session.run("python", "-m", "venv", "--clear", "--without-pip", str(programs.parent))
    install_in(session, programs, requirement, **variables)
    return programs


def environment(session: nox.Session, name: str) -> Path:
    """Return the folder of programs of an environment."""
    folder = Path(session.create_tmp()).resolve() / name
    return folder / ("Scripts" if sys.platform == "win32" else "bin")


def install_in(session: nox.Session, programs: Path, requirement: str, **variables: str) -> None:
    """Install a requirement in an environment."""
    pip = ["python", "-m", "pip", "--python", str(programs / "python"), "install"]
    session.run(*pip, requirement, env=variables)


def torch_requirement() -> str:
    """Return the pinned version of PyTorch."""
    groups = nox.project.dependency_groups(PROJECT, "torch")
    return next(each for each in groups if each.startswith("torch=="))


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
