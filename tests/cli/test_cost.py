"""``truenorm cost``: its tables, its JSON, and how it refuses."""

import json
import re
from pathlib import Path

import pytest

from cli.recording import run
from truenorm.cli import commands as command
from truenorm.cost import layer_norm_cost, rms_norm_cost

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("time-and-memory.md", "gpu-kernel.md")
SHAPE = ("cost", "8", "1024", "4096")


def line_with(text: str, words: str) -> list[str]:
    """Return the words of the first line that has these."""
    return next(line.split() for line in text.splitlines() if words in line)


@pytest.mark.parametrize("page", PAGES)
def test_pages_show_what_the_command_prints(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    blocks = re.findall(r"```console\n\$ truenorm cost (.*?)\n(.*?)```", text, flags=re.DOTALL)
    assert blocks
    for arguments, shown in blocks:
        printed = [line.rstrip() for line in run("cost", *arguments.split()).stdout.splitlines()]
        assert shown.strip("\n").splitlines() == "\n".join(printed).strip("\n").splitlines()


def test_rms_norm() -> None:
    done = run("cost", "8", "1024", "4096", "--operation", "rms_norm")
    assert "RMSNorm of (8, 1024, 4096), float32" in done.stdout
    assert "(D29)" in done.stdout
    found = json.loads(run(*SHAPE, "--operation", "rms_norm", "--json").stdout)
    assert found["operation"] == "rms_norm"
    assert found["forms"][2]["flops"] == rms_norm_cost((8, 1024, 4096)).flops


def test_predicted_times() -> None:
    """At 1 GB/s a million bytes are a millisecond; with few FLOPs a second these decide."""
    moved = layer_norm_cost((8, 1024, 4096)).forward.bytes_moved
    shown = line_with(run(*SHAPE, "--bandwidth", "1").stdout, "ms, predicted")
    assert float(shown[-1]) == pytest.approx(moved / 1e6, rel=1e-3)
    flops = layer_norm_cost((8, 1024, 4096)).forward.flops
    shown = line_with(run(*SHAPE, "--bandwidth", "1", "--flops", "0.1").stdout, "ms, predicted")
    assert float(shown[-1]) == pytest.approx(flops / 1e5, rel=1e-3)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Memory limits every form on a machine that does more than 1.12 FLOPs in the time"),
        (["--bandwidth", "20"], "Memory limits every form: arithmetic is taken to cost nothing"),
        (["--bandwidth", "20", "--flops", "40"], "none does more than 1.12 FLOPs a byte"),
        (["--bandwidth", "20", "--flops", "22"], "Arithmetic limits forward fused:"),
        (
            ["--bandwidth", "20", "--flops", "20"],
            "limits backward blocked, forward fused, backward",
        ),
    ],
)
def test_it_says_what_limits(arguments: list[str], said: str) -> None:
    assert said in " ".join(run(*SHAPE, *arguments).stdout.split())
    small = run("cost", "64", "64", "--keep", "xhat", *arguments).stdout
    assert ("may fit in a cache" in small) == bool(arguments)
    assert "may fit in a cache" not in run(*SHAPE, *arguments).stdout
    assert "step by step, xhat kept" in small


def test_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine has made-up rates, which tell what they were asked for."""
    monkeypatch.setattr(command, "thread_count", lambda _: 3)
    monkeypatch.setattr(command, "measure_bandwidth", lambda threads: threads * 1e9)
    monkeypatch.setattr(command, "measure_flops_rate", lambda name: {"float64": 8e9}[name])
    done = run(*SHAPE, "--measure", "--dtype", "float64")
    assert "Bandwidth 3.0 GB/s, 8 GFLOP/s, measured now: a copy on 3 threads" in done.stdout


def test_json() -> None:
    found = json.loads(run("cost", "6", "8", "--json", "--bandwidth", "2", "--keep", "x").stdout)
    assert found["machine"] == {"bandwidth": 2e9, "flops_rate": "inf", "source": "as given"}
    assert [each["form"] for each in found["forms"]] == ["textbook", "blocked", "fused"]
    for each in found["forms"]:
        cost = layer_norm_cost((6, 8), form=each["form"], keep="x")
        assert each["shape"] == [6, 8]
        assert (each["kept"], each["peak"], each["flops"]) == (cost.kept, cost.peak, cost.flops)
        assert each["seconds"] == cost.seconds(2e9)
        assert each["forward"]["seconds"] == cost.forward.seconds(2e9)
        assert each["backward"]["bytes_written"] == cost.backward.bytes_written
        assert each["backward"]["steps"] == [step._asdict() for step in cost.backward.steps]
    assert "seconds" not in json.loads(run("cost", "6", "8", "--json").stdout)["forms"][0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["8", "0", "4"], "the shape (8, 0, 4) has no elements: every axis needs a length"),
        (["4", "4", "--bandwidth", "0"], "--bandwidth is 0: give a number above zero"),
        (["4", "4", "--bandwidth", "nan"], "--bandwidth is nan: give a number above zero"),
        (["4", "4", "--bandwidth", "2", "--flops", "-1"], "--flops is -1"),
        (["4", "4", "--bandwidth", "2", "--measure"], "--bandwidth and --measure contradict"),
        (["4", "4", "--flops", "2"], "--flops alone predicts no time: give --bandwidth as well"),
        (["4", "4", "--dtype", "int8"], "'int8' is not one of 'float16', 'bfloat16', 'float32'"),
        (["4", "x"], "Invalid value"),
        ([], "Missing argument"),
    ],
)
def test_refusals_are_exit_code_2(arguments: list[str], said: str) -> None:
    done = run("cost", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in " ".join(done.stderr.replace("│", " ").split())
