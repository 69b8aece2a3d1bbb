"""The commands vectors, gradcheck, bench, cost, demo and doctor: options, output and refusals."""

import json
import re
import subprocess
from contextlib import nullcontext
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from cli.recording import record, run, run_main
from promise.checking import BACKENDS
from sample_reports import bench_report, committed_demo
from truenorm.bench import DEFAULT_ROUNDS, DEFAULT_SHAPES
from truenorm.cli import commands
from truenorm.cost import layer_norm_cost, rms_norm_cost
from truenorm.demo import DTYPES, OUTPUTS
from truenorm.doctor import Diagnosis, Line, Section
from truenorm.verify import suite
from truenorm.verify.operations import layer_norm_case

WRITE_VECTORS = "truenorm.verify.report.vectors.write_vectors"


def test_vectors_of_a_level_and_types(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = record(monkeypatch, WRITE_VECTORS, {"cases": 2, "folder": "f"})
    monkeypatch.setattr(
        suite, "cases", lambda dtype, level, operation: [f"{dtype} {level} {operation.name}"]
    )
    assert run("vectors", "f").stdout == "cases: 2\nfolder: f\n"
    types = ("--dtype", "float16", "--dtype", "float64")
    done = run("vectors", "f", "--operation", "rms_norm", "--level", "full", *types, "--json")
    assert json.loads(done.stdout) == {"cases": 2, "folder": "f"}
    assert [arguments for arguments, _ in calls] == [
        (Path("f"), ["float32 quick layer_norm"], None),
        (Path("f"), ["float16 full rms_norm", "float64 full rms_norm"], None),
    ]


@pytest.mark.parametrize(
    ("refusal", "message"),
    [
        (ValueError("no"), "no"),
        (PermissionError(13, "Denied"), "cannot write f: Denied; name another folder"),
    ],
)
def test_vectors_refusals(
    monkeypatch: pytest.MonkeyPatch, refusal: Exception, message: str
) -> None:
    record(monkeypatch, WRITE_VECTORS, refusal)
    monkeypatch.setattr(suite, "cases", lambda *_, **__: [])
    done = run("vectors", "f")
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", f"truenorm: {message}\n")


def test_vectors_report_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ones = np.ones((1, 2), np.float32)
    small = layer_norm_case("ones", (ones, ones[0], ones[0], ones), eps=1.0)
    monkeypatch.setattr(suite, "cases", lambda *_, **__: [small])
    steps: list[object] = []
    bar = nullcontext(lambda *step: steps.append(step))
    monkeypatch.setattr(commands, "progress_bar", lambda _: bar)
    assert run("vectors", tmp_path / "new").stdout.startswith("cases: 1\n")
    assert steps == [(0, 1, "ones")]


PAIRS = """
import numpy as np
def forward(x, weight):
    return np.tanh(x @ weight)
def backward(dy, x, weight):
    g = dy * (1 - forward(x, weight) ** 2)
    return g @ weight.T, x.T @ g
def broken(*arguments):
    return arguments[7]
inputs = [np.ones((2, 3)), np.eye(3)]
pair = forward, backward, inputs
wrong = forward, lambda dy, x, weight: (dy @ weight.T, x.T @ dy), inputs
flat = np.tanh, lambda dy, x: dy * (1 - np.tanh(x) ** 2), np.array([40.0])
slip = forward, lambda dy, x, weight: dy, inputs
fails = broken, backward, inputs
"""


@pytest.fixture
def pairs_file(tmp_path: Path) -> Path:
    path = tmp_path / "my_pair.py"
    path.write_text(PAIRS, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "code", "verdict"),
    [("", 0, "PASS"), (":pair", 0, "PASS"), (":wrong", 1, "FAIL"), (":flat", 1, "INCONCLUSIVE")],
)
def test_gradcheck_verdict_and_exit_code(
    pairs_file: Path, name: str, code: int, verdict: str
) -> None:
    done = run("gradcheck", f"{pairs_file}{name}", "--method", "central")
    assert done.exit_code == code, done.output
    assert done.stdout.startswith(f"{verdict}: gradient check by central")


def test_gradcheck_options(pairs_file: Path) -> None:
    done = run("gradcheck", pairs_file, "--method", "complex", "--tol", "1e-300", "--json")
    report = json.loads(done.stdout)
    assert (done.exit_code, report["method"]) == (1, "complex")
    assert report["gradients"]["weight"]["tol"] == 1e-300
    assert report["gradients"]["weight"]["verdict"] == report["verdict"]
    first, second = (
        json.loads(run("gradcheck", pairs_file, "--seed", seed, "--json").stdout)
        for seed in (1, 2)
    )
    assert first["gradients"]["x"]["analytic"] != second["gradients"]["x"]["analytic"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (":slip", "truenorm: backward returned an array where a tuple of 2 was expected"),
        (":nothing", "my_pair.py has no pair named 'nothing'; it has pair, wrong, flat, slip"),
        (":inputs", "my_pair.py has no pair named 'inputs'"),
        (":fails", "return arguments[7]"),
    ],
)
def test_gradcheck_refusals(pairs_file: Path, name: str, words: str) -> None:
    done = run("gradcheck", f"{pairs_file}{name}")
    assert (done.exit_code, done.stdout) == (2, "")
    assert words in done.stderr
    assert "gradient_check" not in done.stderr  # no frames of the package


def test_bench_options(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = record(monkeypatch, "truenorm.bench.measure", bench_report())
    run("bench")
    options = "--operation rms_norm --dtype float16 --threads 3 --rounds 9"
    run("bench", "2x3", "4x5x6", *options.split())
    names = ("operation", "dtype", "threads", "rounds", "progress")
    default = ("layer_norm", "float32", None, DEFAULT_ROUNDS, None)
    other = ("rms_norm", "float16", 3, 9, None)
    assert calls == [
        ((shapes,), dict(zip(names, values, strict=True)))
        for shapes, values in ((DEFAULT_SHAPES, default), ([(2, 3), (4, 5, 6)], other))
    ]


def test_bench_in_a_pipe() -> None:
    options = ("2x16", "--rounds", "2", "--json")
    done = run_main("", "bench", *options, TRUENORM_BACKEND="reference")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert (report["backend"], report["threads"], len(report["figures"])) == ("reference", 1, 10)


DOCS = Path(__file__).parents[2] / "docs"
PAGE = "learn/time-and-memory.md"
SHAPE = ("cost", "8", "1024", "4096")


def line_with(text: str, words: str) -> list[str]:
    """Split the first line that contains `words`."""
    return next(line.split() for line in text.splitlines() if words in line)


def test_cost_page_shows_what_the_command_prints() -> None:
    text = (DOCS / PAGE).read_text(encoding="utf-8")
    blocks = re.findall(r"```console\n\$ truenorm cost (.*?)\n(.*?)```", text, flags=re.DOTALL)
    assert blocks
    for arguments, shown in blocks:
        printed = [line.rstrip() for line in run("cost", *arguments.split()).stdout.splitlines()]
        assert shown.strip("\n").splitlines() == "\n".join(printed).strip("\n").splitlines()


def test_cost_of_rms_norm() -> None:
    done = run(*SHAPE, "--operation", "rms_norm")
    assert "RMSNorm of (8, 1024, 4096), float32" in done.stdout
    assert "(D29)" in done.stdout
    report = json.loads(run(*SHAPE, "--operation", "rms_norm", "--json").stdout)
    assert report["operation"] == "rms_norm"
    assert report["forms"][2]["flops"] == rms_norm_cost((8, 1024, 4096)).flops


def test_cost_predicts_times() -> None:
    """At 1 GB/s a million bytes take a millisecond; at a low FLOP rate arithmetic decides."""
    moved = layer_norm_cost((8, 1024, 4096)).forward.bytes_moved
    shown = line_with(run(*SHAPE, "--bandwidth", "1").stdout, "ms, predicted")
    assert float(shown[-1]) == pytest.approx(moved / 1e6, rel=1e-3)
    flops = layer_norm_cost((8, 1024, 4096)).forward.flops
    shown = line_with(run(*SHAPE, "--bandwidth", "1", "--flops", "0.1").stdout, "ms, predicted")
    assert float(shown[-1]) == pytest.approx(flops / 1e5, rel=1e-3)


@pytest.mark.parametrize(
    ("arguments", "forward", "backward", "message"),
    [
        ("", "", "", "Memory limits every form on a machine that does more than 1.12 FLOPs in"),
        ("--bandwidth 20", "mmm", "mmm", "20.0 GB/s, arithmetic takes no time without --flops"),
        ("--bandwidth 20 --flops 40", "mmm", "mmm", "20.0 GB/s, 40 GFLOP/s, as given."),
        ("--bandwidth 20 --flops 22", "mma", "mmm", "20.0 GB/s, 22 GFLOP/s, as given."),
        ("--bandwidth 20 --flops 20", "mma", "maa", "20.0 GB/s, 20 GFLOP/s, as given."),
    ],
)
def test_cost_names_the_limit(arguments: str, forward: str, backward: str, message: str) -> None:
    """Of the textbook, blocked and fused form: m is memory, a arithmetic."""
    text = run(*SHAPE, *arguments.split()).stdout
    assert message in " ".join(text.split())
    limits = [line.split()[2:] for line in text.splitlines() if "limited by" in line]
    assert ["".join(name[0] for name in names) for names in limits] == (
        [forward, backward] if forward else []
    )
    assert {name for names in limits for name in names} <= {"memory", "arithmetic"}
    small = run("cost", "64", "64", "--keep", "xhat", *arguments.split()).stdout
    assert ("may fit in a cache" in small) == bool(arguments)
    assert "may fit in a cache" not in text
    assert "step by step, xhat kept" in small


def test_cost_measures_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rates depend on the arguments, so that the output shows them."""
    monkeypatch.setattr("truenorm.threads.thread_count", lambda _: 3)
    monkeypatch.setattr("truenorm.cost.measure_bandwidth", lambda threads: threads * 1e9)
    monkeypatch.setattr("truenorm.cost.measure_flops_rate", lambda name: {"float64": 8e9}[name])
    done = run(*SHAPE, "--measure", "--dtype", "float64")
    assert "Bandwidth 3.0 GB/s, 8 GFLOP/s, measured now: a copy on 3 threads" in done.stdout


def test_cost_json() -> None:
    report = json.loads(run("cost", "6", "8", "--json", "--bandwidth", "2", "--keep", "x").stdout)
    assert report["machine"] == {"bandwidth": 2e9, "flops_rate": "inf", "source": "as given"}
    assert [each["form"] for each in report["forms"]] == ["textbook", "blocked", "fused"]
    for each in report["forms"]:
        cost = layer_norm_cost((6, 8), form=each["form"], keep="x")
        assert each["shape"] == [6, 8]
        assert (each["kept"], each["peak"], each["flops"]) == (cost.kept, cost.peak, cost.flops)
        assert each["seconds"] == cost.seconds(2e9)
        assert each["forward"]["seconds"] == cost.forward.seconds(2e9)
        assert each["backward"]["bytes_written"] == cost.backward.bytes_written
        assert each["backward"]["steps"] == [step._asdict() for step in cost.backward.steps]
    assert "seconds" not in json.loads(run("cost", "6", "8", "--json").stdout)["forms"][0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["4", "4", "--bandwidth", "0"], "--bandwidth must be a positive number, got 0"),
        (["4", "--bandwidth", "2", "--flops", "-1"], "--flops must be a positive number, got -1"),
        (["4", "--bandwidth", "2", "--measure"], "--bandwidth and --measure exclude each other"),
    ],
)
def test_cost_refusals(arguments: list[str], message: str) -> None:
    done = run("cost", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in " ".join(done.stderr.replace("│", " ").split())


def test_demo_options(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = record(monkeypatch, "truenorm.demo.demonstrate", committed_demo())
    assert "float32, y: correct digits" in run("demo").stdout
    options = ("--dtype", "float64", "--size", 7, "--seed", 3, "--output", "dgamma")
    done = run("demo", *options)
    assert "float32, dgamma: correct digits" in done.stdout
    assert "float32, y: correct digits" not in done.stdout
    assert calls == [
        ((DTYPES,), {"size": 100, "seed": 0, "progress": None}),
        ((("float64",),), {"size": 7, "seed": 3, "progress": None}),
    ]


def test_demo_choices() -> None:
    assert set(get_args(commands.DemoOutput)) == set(OUTPUTS)
    assert get_args(commands.DemoDtype) == DTYPES


@pytest.mark.parametrize(
    "wrong", ["--size 1", "--dtype float16", "--output dbeta", "--seed -1", "--png errors.jpg"]
)
def test_demo_refusals(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    calls = record(monkeypatch, "truenorm.demo.demonstrate", committed_demo())
    assert run("demo", *wrong.split()).exit_code == 2
    assert calls == []


HEALTHY = Diagnosis("2026-01-02", False, (Section("A", (Line("b", "c"),)),))
BROKEN = Diagnosis("2026-01-02", False, (Section("A", (Line("b", "c", "repair it"),)),))


@pytest.mark.parametrize(("diagnosis", "code"), [(HEALTHY, 0), (BROKEN, 1)])
def test_doctor_exit_code(
    monkeypatch: pytest.MonkeyPatch, diagnosis: Diagnosis, code: int
) -> None:
    calls = record(monkeypatch, "truenorm.doctor.examine", diagnosis)
    done = run("doctor")
    assert (done.exit_code, done.stderr) == (code, "")
    assert done.stdout.startswith("```text\n")
    assert done.stdout.endswith("\n```\n")
    done = run("doctor", "--full", "--gpu", "--json")
    assert (done.exit_code, done.stderr) == (code, "")
    assert json.loads(done.stdout)["healthy"] is (code == 0)
    assert calls == [((), {"full": flag, "gpu": flag, "progress": None}) for flag in (False, True)]


def run_without(missing: list[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process that cannot import these packages."""
    before = f"import sys; sys.modules.update(dict.fromkeys({missing}))"
    return run_main(before, "doctor", *arguments)


OPTIONAL = ["ml_dtypes", "flint", "matplotlib", "jinja2"]


@pytest.mark.slow
def test_doctor_with_all_packages() -> None:
    done = run_without([])
    assert (done.returncode, done.stderr) == (0, "")
    words = " ".join(done.stdout.split())
    chosen = "native" if "native" in BACKENDS else "reference"
    assert f"taken {chosen}, the first that is usable" in words
    assert words.count("correct to the bit") == 4 * len(BACKENDS)
    assert "HEALTHY" in words


def test_doctor_with_numpy_alone() -> None:
    """Run with NumPy and the packages that every command needs."""
    done = run_without(OPTIONAL, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert report["healthy"] is True
    titles = ["Versions", "Backends", "Processor", "Self-test"]
    assert list(report["sections"]) == titles
    tested = {line["name"]: line["value"] for line in report["sections"]["Self-test"]["lines"]}
    missing = "not tested: bfloat16 needs the package ml_dtypes"
    for backend in BACKENDS:
        assert tested.pop(f"{backend}, bfloat16").startswith(missing)
    assert len(tested) == 3 * len(BACKENDS)
    assert all(value.startswith("correct to the bit") for value in tested.values())


@pytest.mark.slow
def test_doctor_full_with_numpy_alone() -> None:
    done = run_without(OPTIONAL, "--full")
    assert (done.returncode, done.stderr) == (0, "")
    words = " ".join(done.stdout.split())
    assert words.count("PASS, by complex") == 2
    assert "bfloat16 not tested: bfloat16 needs the package ml_dtypes" in words
    assert words.count("correct: y, dx, dgamma and dbeta") == 3
