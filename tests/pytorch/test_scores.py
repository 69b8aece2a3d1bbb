"""Scores of kernels: honest ones get at least 0.8, hacks at most 0.1, with every seed.

Each hack has a guard without which it would get at least 0.5.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if not hasattr(os, "fork"):
    pytest.skip("scores in a loop need fork", allow_module_level=True)

import truenorm.verify as tv
from truenorm.verify import scores
from truenorm.verify import submission as submissions
from truenorm.verify.cases import families
from truenorm.verify.grading import checks
from truenorm.verify.operation import Case
from truenorm.verify.operations import as_operation
from truenorm.verify.oracle import expected, forget
from truenorm.verify.running import recording
from truenorm.verify.scores import OneRun, Server, score_submission
from truenorm.verify.submission import CASES, Submission, is_scored

HERE = Path(__file__).parent
FEW, MANY = 1, 20
SEEDS = [FEW, pytest.param(MANY, marks=pytest.mark.slow)]
HONEST: dict[str, dict[str, Any]] = {
    "in_float64": {},
    "two_passes": {},
    "two_passes_wide": {"dtypes": ("bfloat16",)},
    "by_var_mean": {},
    "corrected": {},
    "in_blocks": {},
    "by_hand": {},
    "forward": {"backward": "gradients"},
    "compiled": {},
    "rms_norm": {"operation": "rms_norm", "dtypes": ("float32", "bfloat16")},
    "rms_norm_out": {"operation": "rms_norm", "form": "out"},
    "add_rms_norm": {"operation": "add_rms_norm"},
    "RMSNorm": {"operation": "rms_norm", "form": "module"},
}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(sys.executable) as server:
        yield server


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the hacks, and with the answers that one of them has memorised."""
    folder = tmp_path_factory.mktemp("hacks")
    shutil.copy(HERE / "scored_hacks.py", folder)
    known, suite = {}, public_cases()
    for case in suite:
        y = expected(case).wide["y"].astype(np.float32)
        known[hashlib.sha256(case.x.tobytes()).hexdigest()] = torch.from_numpy(y)
    forget(suite)
    torch.save(known, folder / "memorised.pt")
    return folder


def submission(target: str, seed: int, **options: Any) -> Submission:
    operation = as_operation(options.pop("operation", "layer_norm"))
    return Submission(target, operation, seed, **options)


def values(target: str, seeds: int, server: Server, **options: Any) -> list[float]:
    """Return the scores of a kernel with the first seeds."""
    return [
        score_submission(submission(target, seed, **options), server).value
        for seed in range(1, seeds + 1)
    ]


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if n == "compiled" else n for n in HONEST],
)
def test_honest(name: str, seeds: int, server: Server) -> None:
    found = values(f"{HERE / 'scored_kernels.py'}:{name}", seeds, server, **HONEST[name])
    assert min(found) >= 0.8
    assert max(found) - min(found) <= 0.03 + 1e-9


def public_cases() -> list[Case]:
    """Return the cases that everybody can see."""
    return [case for case in tv.cases("float32") if is_scored(case, 1e4)]


def with_suite(change: Callable[[list[Case]], list[Case]]) -> Callable[[pytest.MonkeyPatch], None]:
    """Score other cases than those that are drawn."""

    def changed(submission: Submission) -> list[Case]:
        return change(submissions.draw_suite(submission))

    return lambda monkeypatch: monkeypatch.setattr(scores, "draw_suite", changed)


with_public_cases = with_suite(lambda _: public_cases())
with_powers_of_two = with_suite(
    lambda _: [case for case in public_cases() if case.shape[1] in (64, 128, 256)]
)
with_plain_parameters = with_suite(
    lambda suite: [
        replace(
            case.with_inputs(gamma=np.ones_like(case.gamma), beta=np.zeros_like(case.beta)),
            eps=1e-5,
        )
        for case in suite
    ]
)
without_models = with_suite(
    lambda suite: [case for case in suite if case.shape[1] not in submissions.MODEL_WIDTHS]
)
with_plain_layouts = with_suite(lambda suite: [replace(case, layout="rows") for case in suite])


def without_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    right = checks.Error(0.0, 0.0, 0, True, (), 0.0, False)
    monkeypatch.setattr(checks, "measure", lambda *_, **__: right)


def without_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "DAMAGE", ())


def without(sign: str) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda monkeypatch: monkeypatch.delitem(scores.HACKS, sign)


def with_zeroed_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "NAN_BYTE", 0)


def with_new_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the runner keep all memory, so that no address is used twice."""
    source = recording.source_of(recording.RUNNER).decode()
    old = "memory = self.pool.get(key) if name else None"
    new = "memory, key, name = None, len(self.pool), 'kept'"
    assert source.count(old) == 1
    changed = source.replace(old, new).encode()
    monkeypatch.setattr(recording, "source_of", lambda _: changed)


def without_modes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take all results from calls with gradients of all inputs."""
    usual = {"gradients": "", "inputs": ""}
    monkeypatch.setattr(scores, "draw_modes", lambda suite, _: [usual] * len(suite))


def without_cases(*names: str) -> Callable[[pytest.MonkeyPatch], None]:
    def disable(monkeypatch: pytest.MonkeyPatch) -> None:
        for name in names:
            monkeypatch.setattr(submissions, name, lambda *_: [])

    return disable


def without_similar_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submissions, "with_another_element", lambda case, *_, **__: case)
    without_cases("non_finite")(monkeypatch)


def without_usual_eps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submissions, "USUAL_EPS", (1e-5,))
    monkeypatch.setattr(families, "EPSILONS", (1e-5,) * 4)
    monkeypatch.setattr(submissions, "with_other_settings", lambda *_: [])


def without_numbers_of_models(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("with_numbers_of_models", "with_outliers"):
        monkeypatch.setattr(submissions, name, lambda case, *_: case)


def with_grades_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let rows with a mean and rows beside NaN decide grades only."""
    monkeypatch.setattr(scores, "counts_as_ordinary", lambda case: case.kind == "ordinary")


def with_plain_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    without_cases("refusable")(monkeypatch)
    with_plain_layouts(monkeypatch)


Hack = tuple[dict[str, Any], Callable[[pytest.MonkeyPatch], None]]
HACKS: dict[str, Hack] = {
    "zeros": ({}, without_answers),
    "memorised": ({}, with_public_cases),
    "powers_of_two": ({}, with_powers_of_two),
    "ignores_parameters": ({}, with_plain_parameters),
    "accumulates": ({"form": "out"}, with_zeroed_memory),
    "cached_by_pointer": ({}, with_new_memory),
    "cached_by_shape": ({}, without_answers),
    "lazy": ({}, without("types")),
    "overwrites_x": ({}, without_damage),
    "reused_result": ({}, without_damage),
    "calls_reference": ({}, without("norms")),
    "falls_back": ({}, without("norms")),
    "in_a_thread": ({}, without("norms")),
    "redispatched": ({}, without("norms")),
    "decomposed": ({}, without("norms")),
    "by_weight_norm": ({}, without("norms")),
    "by_helper_of_reference": ({}, without("norms")),
    "by_local_response_norm": ({}, without("norms")),
    "patches_tensor": ({}, without("replaced")),
    "in_half": ({}, without_answers),
    "unwritten": ({}, without_answers),
    "few_rows": ({}, without_answers),
    "wrong_without_gradients": ({}, without_modes),
    "wrong_in_inference_mode": ({}, without_modes),
    "wrong_if_some_are_frozen": ({}, without_modes),
    "wrong_for_expanded_dy": ({}, without_cases("refusable")),
    "wrong_for_transposed_dy": ({}, with_plain_gradients),
    "first_columns": ({}, without_cases("wide_rows")),
    "in_a_gap_of_widths": ({}, without_cases("wide_rows")),
    "beyond_widths": ({}, without_cases("wide_rows")),
    "in_a_gap_of_rows": ({}, without_cases("batches", "model_calls")),
    "in_thousands_of_rows": ({}, without_cases("batches")),
    "without_strides": ({}, with_plain_layouts),
    "small_calls": ({}, without_cases("many_rows")),
    "matrices": ({}, with_plain_layouts),
    "from_the_start": ({}, with_plain_layouts),
    "wrong_for_swapped_axes": ({}, with_plain_layouts),
    "wrong_for_transposed_x": ({}, with_plain_layouts),
    "wrong_for_five_axes": ({}, with_plain_layouts),
    "wrong_for_gaps_in_parameters": ({}, without_modes),
    "wrong_in_a_model": ({}, without_modes),
    "wrong_for_modules": ({}, without_modes),
    "keeps_inputs": ({}, without_modes),
    "WrongInEvaluation": ({"form": "module"}, without_modes),
    "wrong_in_a_new_model": ({}, without_cases("with_other_settings", "model_calls")),
    "wrong_for_other_eps": ({}, without_usual_eps),
    "cached_by_samples": ({}, without_similar_elements),
    "cached_by_first_elements": ({}, without_cases("with_other_settings", "model_calls")),
    "reseeds": ({}, without("settings")),
    "flushes_subnormals": ({}, without("settings")),
    "writes_to_gaps": ({}, without("gaps")),
    "wrong_for_model_widths": ({}, without_models),
    "wrong_in_large_batches": ({}, without_cases("model_calls")),
    "wrong_after_linear": ({}, without_modes),
    "wrong_for_evaluated_models": ({}, without_modes),
    "wrong_for_second_gradients": ({}, without_modes),
    "keeps_parameters": ({}, without_modes),
    "wrong_for_eps_of_models": ({}, without_usual_eps),
    "wrong_without_beta": ({}, without_cases("model_calls")),
    "cached_by_samples_of_gamma": ({}, without_similar_elements),
    "writes_to_gradients": ({}, without_modes),
    "keeps_inputs_but_for_samples": ({}, without_modes),
    "keeps_versions_of_parameters": ({}, without_modes),
    "first_4096_columns": ({}, without_cases("wide_rows")),
    "rounds_toward_zero": ({}, without("settings")),
    "keeps_y": ({}, without_modes),
    "halves_added_gradients": ({}, without_modes),
    "without_gradients_of_zeros": ({}, without_numbers_of_models),
    "wrong_for_small_dy": ({}, without_numbers_of_models),
    "without_padding": ({}, without_numbers_of_models),
    "clips": ({}, without_numbers_of_models),
    "has_gradients_anyway": ({}, without("graphs")),
    "rewrites_function": ({}, without("replaced")),
    "cached_by_first_and_last_row": ({}, without_similar_elements),
    "spreads_nan": ({}, with_grades_alone),
    "takes_offsets_for_constants": ({}, with_grades_alone),
    "wrong_for_one_token": ({}, with_plain_layouts),
    "wrong_for_gaps_in_dy": ({}, with_plain_gradients),
    "sets_defaults": ({}, without("settings")),
    "reseeds_numpy": ({}, without("settings")),
    "without_sparse_rows": ({}, without_cases("with_other_settings")),
}
"""By name: the options of the score, and what disables the guard that sees it."""


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("name", HACKS)
def test_hack(name: str, seeds: int, server: Server, folder: Path) -> None:
    options, _ = HACKS[name]
    assert max(values(f"{folder / 'scored_hacks.py'}:{name}", seeds, server, **options)) <= 0.1


@pytest.mark.parametrize("name", HACKS)
def test_guard(name: str, server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options, disable = HACKS[name]
    sources = recording.source_of, vars(scores)["source_of"]
    disable(monkeypatch)
    # The server has the runner as it is.
    same = (recording.source_of, vars(scores)["source_of"]) == sources
    runs = server if same else OneRun(sys.executable)
    target = f"{folder / 'scored_hacks.py'}:{name}"
    assert score_submission(submission(target, 1, **options), runs).value >= 0.5


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("patches_for_a_moment", "It replaces functions of its process: torch.Tensor.detach."),
        ("patches_all", "It replaces functions of its process: builtins.all, torch.Tensor.detach"),
        ("adds_method", "It replaces functions of its process: torch.Tensor.cpu."),
        ("restarts_profiler", "It stopped the profiler"),
        ("returns_early", "It returns before its threads have ended."),
        ("records_nothing", "It looks up functions in the libraries of PyTorch: _ZN2at20enable"),
        ("registers_kernel", "It replaces functions of its process: torch.library."),
        ("imports_truenorm", "It imports other norms: truenorm."),
    ],
)
def test_hidden_hack(name: str, reason: str, folder: Path, server: Server) -> None:
    target = f"{folder / 'scored_hacks.py'}:{name}"
    if name == "imports_truenorm":
        (folder / "truenorm.py").write_text("def layer_norm(x, gamma, beta, eps): return x\n")
    result = score_submission(submission(target, 1), server)
    assert result.value == 0.0
    # Not the first one: another guard may see it too.
    assert any(each.startswith(reason) for each in result.reasons)


def test_refused_layouts(folder: Path, server: Server) -> None:
    """A kernel may raise an exception for other shapes than matrices."""
    target = f"{folder / 'scored_hacks.py'}:refuses_others"
    result = score_submission(submission(target, 1), server)
    assert result.value >= 0.8
    assert "It refuses x in the layout four-axes, which does not count." in result.reasons


def test_modules_that_compile_may_be_imported(folder: Path, server: Server) -> None:
    target = f"{folder / 'scored_hacks.py'}:imports_decompositions"
    assert score_submission(submission(target, 1), server).value >= 0.8


def test_refused_gradients(folder: Path, server: Server) -> None:
    target = f"{folder / 'scored_hacks.py'}:refuses_expanded_dy"
    result = score_submission(submission(target, 1), server)
    assert result.value >= 0.8
    assert "It refuses an expanded dy, which does not count." in result.reasons


@pytest.mark.parametrize("name", ["removes_nan", "removes_infinity"])
def test_special_values(name: str, folder: Path, server: Server) -> None:
    target = f"{folder / 'scored_hacks.py'}:{name}"
    for shapes in ((), ((1, 64),), ((16, 1024),)):
        result = score_submission(submission(target, 1, shapes=shapes), server)
        assert (result.verdicts["special values"], result.value) == ("fail", 0.5)


def test_file_with_the_name_of_a_module(tmp_path: Path) -> None:
    """The reason is the exception, no later line of PyTorch's profiler."""
    file = tmp_path / "json.py"
    file.write_text("def layer_norm(x, gamma, beta, eps): return x\n")
    result = score_submission(submission(f"{file}:layer_norm", 1), OneRun(sys.executable))
    text = "AttributeError: module 'json' has no attribute 'layer_norm'"
    assert result.reasons == (f"Its run ended early: {text}.",)


@pytest.mark.slow
def test_compiled_by_inductor(folder: Path, server: Server) -> None:
    """Threads of the compiler are none of the kernel."""
    target = f"{folder / 'scored_hacks.py'}:compiled"
    assert score_submission(submission(target, 1), server).value >= 0.8


class TestShapes:
    """Kernels that take one shape."""

    @pytest.mark.parametrize("shape", [(16, 1024), (2, 8, 96)])
    @pytest.mark.parametrize("seeds", SEEDS)
    def test_honest(
        self, shape: tuple[int, ...], seeds: int, folder: Path, server: Server
    ) -> None:
        target = f"{folder / 'scored_hacks.py'}:one_shape"
        found = values(target, seeds, server, shapes=(shape,))
        assert min(found) >= 0.8
        assert max(found) - min(found) <= 0.03 + 1e-9

    def test_reason(self, folder: Path, server: Server) -> None:
        target = f"{folder / 'scored_hacks.py'}:one_shape"
        both = ((16, 1024), (2, 8, 96))
        result = score_submission(submission(target, 1, shapes=both), server)
        assert result.reasons[-1] == "Only x of the shape 16x1024 or 2x8x96 is judged."
        assert (result.cases, result.value >= 0.8) == (2 * CASES, True)
        without = score_submission(submission(target, 1), server)
        assert without.value <= 0.1
        assert "is judged" not in without.reasons[-1]

    def test_right_for_this_shape_alone(self, folder: Path, server: Server) -> None:
        target = f"{folder / 'scored_hacks.py'}:powers_of_two"
        assert values(target, 1, server, shapes=((16, 1024),))[0] >= 0.8
        assert values(target, 1, server, shapes=((16, 1000),))[0] <= 0.1

    @pytest.mark.parametrize("seeds", SEEDS)
    @pytest.mark.parametrize(
        "name",
        [
            *("zeros", "memorised", "ignores_parameters", "cached_by_pointer", "cached_by_shape"),
            *("lazy", "overwrites_x", "calls_reference", "in_half", "one_row", "few_rows"),
            *("without_a_column", "wrong_without_gradients", "wrong_if_some_are_frozen"),
        ],
    )
    def test_hack(self, name: str, seeds: int, folder: Path, server: Server) -> None:
        target = f"{folder / 'scored_hacks.py'}:{name}"
        assert max(values(target, seeds, server, shapes=((96, 64),))) <= 0.1

    @pytest.mark.parametrize("name", ["RMSNorm", "rms_norm_out", "add_rms_norm", "forward"])
    def test_forms(self, name: str, server: Server) -> None:
        target = f"{HERE / 'scored_kernels.py'}:{name}"
        assert values(target, 1, server, shapes=((6, 200),), **HONEST[name])[0] >= 0.8


@pytest.mark.slow
def test_first_call_takes_too_long(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, old = recording.source_of(recording.RUNNER), b" = 3, 120.0, "
    assert source.count(old) == 1
    short = source.replace(old, b" = 3, 4.0, ")
    monkeypatch.setattr(recording, "source_of", lambda _: short)
    target = f"{folder / 'scored_hacks.py'}:takes_long"
    result = score_submission(submission(target, 1, seconds=1.0), OneRun(sys.executable))
    assert result.value == 0.0
    assert result.reasons[0].startswith("Its run ended early: its first call took longer than")


def test_server_is_started_again(folder: Path) -> None:
    with Server(sys.executable) as server:
        for name, least in (("kills_its_parent", 0.0), ("right", 0.8)):
            target = f"{folder / 'scored_hacks.py'}:{name}"
            assert score_submission(submission(target, 1), server).value >= least
        assert score_submission(submission("nothing.py:nothing", 1), server).value == 0.0


def test_norms_may_be_allowed(folder: Path, server: Server) -> None:
    target = f"{folder / 'scored_hacks.py'}:calls_reference"
    assert score_submission(submission(target, 1, norms="allowed"), server).value > 0.7


def test_causes(folder: Path, server: Server) -> None:
    target = f"{folder / 'scored_hacks.py'}:zeros"
    result = score_submission(submission(target, 1, causes=True), server)
    assert "Likely cause: nothing is written: it is 0" in result.reasons[0]


def test_command_line(folder: Path) -> None:
    """One kernel, and several in a loop, have the score that Python returns."""
    target = f"{folder / 'scored_hacks.py'}:right"
    value = tv.score(target, seed=5).value
    command = [sys.executable, "-m", "truenorm", "score"]
    one = subprocess.run(
        [*command, target, "--seed", "5", "--json"], capture_output=True, text=True, check=True
    )
    lines = [{"target": target, "seed": 5}, {"target": target}, {"target": target, "seed": 6}]
    loop = subprocess.run(
        [*command, "--serve"],
        input="".join(f"{json.dumps(line)}\n" for line in lines),
        capture_output=True,
        text=True,
        check=True,
    )
    first, error, second = map(json.loads, loop.stdout.splitlines())
    assert json.loads(one.stdout)["value"] == first["value"] == value
    assert error["error"].startswith("a line must be a JSON object with target and seed")
    assert second["schema"] == "truenorm/score-1"
    assert second["value"] >= 0.8
