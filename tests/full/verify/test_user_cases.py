"""User cases: shapes and saved tensors, what they accept, and what is reported for them."""

import itertools
import json
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import truenorm.verify as tv
from shared.verify.grouped.kernels import Textbook
from shared.verify.grouped.planted import grouped
from shared.verify.planted.variants import Changed, variant
from shared.verify.recorded import in_float64
from truenorm.verify import oracle as answering
from truenorm.verify.grading import user_cases as measuring
from truenorm.verify.grading.user_cases import sampled_rows
from truenorm.verify.inputs.families import EPS
from truenorm.verify.judge import verify_target
from truenorm.verify.norms.enclosures import row_blocks
from truenorm.verify.norms.norm import require_norm
from truenorm.verify.operation import Case, Operation
from truenorm.verify.types import FORMATS, Array, Float64s, dtype_of, same_bits, unit_roundoff

SLOW = pytest.mark.slow(reason="large user cases of all types take minutes")

pytestmark = pytest.mark.usefixtures("without_long_calls")


@pytest.fixture(autouse=True)
def few_exact_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute fewer rows in integers than users get: these tests are about the bounds."""
    monkeypatch.setattr(measuring, "SAMPLED", 2**11)


def subject(
    operation: Operation = tv.LAYER_NORM, dtype: str = "float32", **changed: Callable[[Any], Any]
) -> tv.Subject:
    """Return a norm that computes in float64 and rounds once, but for results that are changed."""
    norm = require_norm(operation, "a test")
    return variant(Changed(**changed), "float64 inside", norm, dtype)


OPERATIONS = (
    *("layer_norm", "add_rms_norm", "add_layer_norm", "rms_norm,gain=zero-centred,beta=true"),
    "rms_norm,parameters=float32",
)


@pytest.mark.parametrize(
    ("spec", "dtype"),
    [
        # The gate has each operation and each type.
        pytest.param(spec, dtype, marks=() if (k - m) % 3 == 0 else SLOW)
        for k, spec in enumerate(OPERATIONS)
        for m, dtype in enumerate(each for each in FORMATS if each != "float64")
    ],
)
def test_float64_inside_is_faithful(spec: str, dtype: str) -> None:
    norm = grouped(spec)
    case = tv.case_of_shape((3, 50, 67), dtype, operation=norm)
    assert case.shape == (150, 67)
    right = subject(norm, dtype) if norm.parameter_type else Textbook(norm).subject(dtype)
    tv.check(right, case, require="faithful")


@pytest.mark.parametrize(
    ("output", "dtype"),
    [
        # The gate has each output and each type.
        pytest.param(output, dtype, marks=() if k == m else SLOW)
        for k, output in enumerate(("y", "dx", "dgamma", "dbeta"))
        for m, dtype in enumerate(FORMATS)
    ],
)
def test_one_wrong_element_of_a_late_row_is_reported(output: str, dtype: str) -> None:
    """Off by some tolerances, in a row that integers are not asked for."""
    case = tv.case_of_shape((1000, 130), dtype)
    row = 997
    assert row not in sampled_rows(case)
    at = (row, 7) if output in ("y", "dx") else (7,)

    off = (200 if output in ("y", "dx") else 50_000) * unit_roundoff(dtype)

    def change(known: dict[str, Array]) -> Array:
        result = known[output]
        if len(result) > at[0]:
            before = result[at].astype(np.float64)
            result[at] = before * (1 + off) + off
            assert result[at] != before
        return result

    tv.check(subject(dtype=dtype), case)
    with pytest.raises(AssertionError, match=rf"{dtype}-own-1000x130 .*: {output}\[{at[0]}"):
        tv.check(subject(dtype=dtype, **{output: change}), case)  # type: ignore[arg-type]


def with_element(output: str, at: Any, value: Any) -> Callable[[dict[str, Array]], Array]:
    """Return a function that puts a value, or a function of the element, into a result."""

    def change(known: dict[str, Array]) -> Array:
        result = known[output]
        result[at] = value(result[at]) if callable(value) else value
        return result

    return change


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0])
def test_a_wrong_special_value_is_reported(value: float) -> None:
    with pytest.raises(AssertionError, match=r"dx\[599, 3\] is "):
        tv.check(subject(dx=with_element("dx", (-1, 3), value)), tv.case_of_shape((600, 64)))


@SLOW
def test_one_ulp_is_not_correct_anywhere() -> None:
    """Bounds tell a rounding from its neighbour; beside a tie alone they do not."""
    case = tv.case_of_shape((300, 130))
    assert 201 not in sampled_rows(case)
    one_ulp_off = with_element("y", (201, 5), lambda y: np.nextafter(y, np.float32(np.inf)))
    with pytest.raises(AssertionError, match="y is off by "):
        tv.check(subject(y=one_ulp_off), case, require="correct")
    report = tv.verify(subject(), own=[case])
    mine = [each for each in report.results if each.family == "own"]
    assert {each.output for each in mine} == {"y", "dx", "dgamma", "dbeta"}
    assert all(each.correct and each.ulp <= 0.5 for each in mine)


def test_too_large_for_the_type_is_infinite() -> None:
    gamma = np.full(64, 60000.0, np.float16)
    rows = np.random.default_rng(0).normal(size=(9, 64)).astype(np.float16)
    case = tv.case_from({"x": rows, "gamma": gamma})
    tv.check(subject(dtype="float16"), case)
    clipped = subject(dtype="float16", y=lambda known: known["y"].clip(-65504, 65504))
    with pytest.raises(AssertionError, match=r"is -?65504\.0, the exact answer -?inf"):
        tv.check(clipped, case)


def test_growth_with_kappa_is_conditional() -> None:
    """A mean that is rounded once is conditional, on one's own data as on the judge's."""
    rows = np.random.default_rng(0).normal(size=(40, 128)) + 1e4
    case = tv.case_from({"x": rows.astype(np.float32)})

    def forward(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
        c = x - x.mean(axis=1, keepdims=True)
        return np.asarray(
            gamma * c / np.sqrt((c * c).mean(axis=1, keepdims=True) + np.float32(eps)) + beta
        )

    with pytest.raises(AssertionError, match="off by"):
        tv.check(tv.Subject(forward), case)
    tv.check(tv.Subject(forward), case, require="conditional")


def test_other_bits_shapes_and_types_are_reported() -> None:
    case = tv.case_of_shape((40, 64))
    steps = itertools.cycle([-9, 9])
    for change, message in (
        (
            {"y": with_element("y", (0, 0), lambda y: np.nextafter(y, np.float32(next(steps))))},
            "y has different bits when the call is repeated",
        ),
        (
            {"dx": lambda known: known["dx"][:-1]},
            r"dx is shape \(39, 64\); it should have the shape \(40, 64\)",
        ),
        ({"y": lambda known: known["y"].astype(float)}, "y is float64; it should be float32"),
    ):
        with pytest.raises(AssertionError, match=message):
            tv.check(subject(**change), case)


@SLOW
@pytest.mark.parametrize(("where", "rows", "message"), [
    (lambda rows, _: rows < 8, 300, "y of row 0 has different bits than in the batch"),
    (lambda rows, _: rows > 8, 3, "y has different bits in a batch of 9 rows than in one of"),
    (lambda rows, _: rows == 256, 1, "y has different bits in a batch of 256 rows than in"),
    (lambda _, row: row == 17, 18, "y of row 17 has different bits than in the batch"),
], ids=["few", "more", "one", "last"])  # fmt: skip
def test_a_row_must_not_depend_on_its_batch(
    where: Callable[[int, int], bool], rows: int, message: str
) -> None:
    def forward(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
        y = in_float64(x, gamma, beta, eps)
        for row in range(len(y)):
            if where(len(y), row):
                y[row] = np.nextafter(y[row], np.float32(np.inf))
        return y

    with pytest.raises(AssertionError, match=message):
        tv.check(tv.Subject(forward), tv.case_of_shape((rows, 48)))


def test_a_report_with_a_shape_and_its_reproducer() -> None:
    def change(known: dict[str, Array]) -> Array:
        y = known["y"]
        y[-1] *= np.float32(1.001 if len(y) == 2000 else 1)
        return y

    told: list[str] = []
    report = tv.verify(
        subject(y=change),
        own=[tv.case_of_shape((2000, 66))],
        progress=lambda _, __, what: told.append(what),
    )
    finding, alone = report.findings
    assert alone.guard == "batch"  # the row alone is right
    assert finding.case == "float32-own-2000x66"
    assert finding.why == "your shape, 2000x66"
    assert finding.symptom.startswith("y[1999, ")
    assert "case = tv.case_of_shape((2000, 66), 'float32')\n" in finding.reproducer
    assert {each.output: each.grade for each in report.grades}["y"] == "wrong"
    assert "float32-own-2000x66: row 1,984 of 2,000" in told
    script = finding.reproducer.replace("subject = ...", "pass").replace("# your", "# ")
    with pytest.raises(AssertionError, match="got "):
        exec(script, {"subject": subject(y=change)})  # what a reader would paste


def test_a_case_beyond_the_domain_is_left_out() -> None:
    rows = np.random.default_rng(0).normal(size=(40, 64)) + 1e3
    case = tv.case_from({"x": rows.astype(np.float32)})
    for domain, out in (
        (tv.Domain(kappa=10), True),
        (tv.Domain(largest=100), True),
        (tv.Domain(largest=1e4, kappa=1e4), False),
        (None, False),
    ):
        claimed = tv.Subject(lambda x, *_: x, domain=domain)
        report = tv.verify(claimed, own=[case])
        assert any(each.family == "own" for each in report.results) != out


@pytest.mark.parametrize("shape", [(700, 512), pytest.param((2, 2**15 + 5), marks=SLOW)])
def test_no_exact_answer_is_larger_than_a_row(
    shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And few rows have one; beside inputs and results, memory does not grow with the rows."""
    asked: list[tuple[int, int]] = []

    def counting(case: Case) -> dict[str, Float64s]:
        asked.append(case.shape)
        return answering.compute_exact(case)

    monkeypatch.setattr(measuring, "compute_exact", counting)
    monkeypatch.setattr(measuring, "load_or_compute", lambda case, compute: compute(case))
    case = tv.case_of_shape(shape)
    assert max((part.stop - part.start) * shape[1] for part in row_blocks(case)) <= max(
        2**15, shape[1]
    )
    monkeypatch.setattr(measuring, "sampled_rows", lambda case: [0, case.shape[0] - 1])
    tv.check(subject(), case)
    assert asked == [(1, shape[1])] * 2


def test_memory_beside_results_does_not_grow_with_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "sampled_rows", lambda _: [])
    peaks = []
    for rows in (500, 4000):
        case = tv.case_of_shape((rows, 128))
        results = {"y": case.x, "dx": case.dy, "dgamma": case.gamma, "dbeta": case.beta}
        tracemalloc.start()
        measuring._measure_all(case, results, lambda _: None)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]
    assert peaks[1] < 100 * 2**15 * 8  # some arrays of what is looked at at once


CODES = {"float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64"}


def activations(dtype: str = "float32", shape: tuple[int, ...] = (2, 30, 48)) -> dict[str, Array]:
    """Return what a model could have saved: a few channels are far from the others."""
    random = np.random.default_rng(3)
    x = random.normal(size=shape)
    x[..., 5] += 30
    arrays = {
        "hidden_states": x,
        "weight": 1 + 0.1 * random.normal(size=shape[-1]),
        "bias": 0.1 * random.normal(size=shape[-1]),
        "grad": 1e-3 * random.normal(size=shape),
    }
    return {name: array.astype(dtype_of(dtype)) for name, array in arrays.items()}


def save_npz(path: Path, arrays: Mapping[str, Array], **settings: Any) -> Path:
    """Write as `truenorm vectors` does: bfloat16 as bits, and a note of the type."""
    stored: dict[str, Any] = {
        name: array.view(np.uint16) if array.dtype.name == "bfloat16" else array
        for name, array in arrays.items()
    }
    np.savez(path, **stored, **settings)
    return path


def save_safetensors(path: Path, arrays: Mapping[str, Array], metadata: Any = None) -> Path:
    """Write the format as its specification has it."""
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    data = b""
    for name, array in arrays.items():
        raw = array.tobytes()
        header[name] = {
            "dtype": CODES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    return save_raw(path, header, data)


def tensor(**changed: Any) -> dict[str, Any]:
    """Return a header with one tensor, the rest of which is right."""
    return {"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]} | changed}


def save_raw(path: Path, header: Any, data: bytes) -> Path:
    encoded = json.dumps(header).encode()
    path.write_bytes(len(encoded).to_bytes(8, "little") + encoded + data)
    return path


@pytest.mark.parametrize("dtype", FORMATS)
def test_both_formats_give_the_same_case(dtype: str, tmp_path: Path) -> None:
    arrays = activations(dtype)
    npz = tv.load_data(save_npz(tmp_path / "a b.npz", arrays, eps=0.25, dtype=np.array(dtype)))
    other = tv.load_data(save_safetensors(tmp_path / "a.safetensors", arrays, {"eps": "0.25"}))
    assert npz.name == f"{dtype}-own-a-b-2x30x48"
    for case in (npz, other):
        assert case.shape == (60, 48)
        assert case.eps == 0.25
        assert case.dtype == dtype
        for mine, theirs in (
            (case.x, arrays["hidden_states"].reshape(60, 48)),
            (case.gamma, arrays["weight"]),
            (case.beta, arrays["bias"]),
            (case.dy, arrays["grad"].reshape(60, 48)),
        ):
            assert same_bits(mine, theirs)


def test_bfloat16_of_ml_dtypes(tmp_path: Path) -> None:
    """NumPy stores its bytes without a type."""
    arrays = activations("bfloat16")
    np.savez(tmp_path / "rows.npz", **arrays)  # type: ignore[arg-type]
    with np.load(tmp_path / "rows.npz") as stored:
        assert stored["hidden_states"].dtype.kind == "V"
    case = tv.load_data(tmp_path / "rows.npz")
    assert case.dtype == "bfloat16"
    assert case.why == "your data, rows.npz (2 bytes without a type read as bfloat16)"
    np.testing.assert_array_equal(case.x, arrays["hidden_states"].reshape(case.shape), strict=True)


def test_data_of_another_type(tmp_path: Path) -> None:
    """float32 tensors are rounded for a bfloat16 kernel, and the report says so."""
    arrays = activations("float32")
    path = save_npz(tmp_path / "rows.npz", arrays)
    operation = tv.norm("rms_norm", parameters="float32")
    case = tv.load_data(path, operation=operation, dtype="bfloat16")
    assert case.why == "your data, rows.npz (float32 rounded to bfloat16)"
    rows = arrays["hidden_states"].reshape(case.shape)
    np.testing.assert_array_equal(case.x, rows.astype(dtype_of("bfloat16")), strict=True)
    assert case.gamma.dtype == np.float32
    made = eval(case.made.replace("{operation}", ", operation=operation"))
    np.testing.assert_array_equal(made.x, case.x, strict=True)
    kernel = tmp_path / "kernel.py"
    kernel.write_text(
        "import truenorm as tn, truenorm.verify as tv\n"
        "def forward(x, gamma, eps): return tn.rms_norm(x, gamma, eps=eps)\n"
        "subject = tv.Subject(forward, dtypes=['bfloat16'], operation='rms_norm')\n",
        encoding="utf-8",
    )
    report = verify_target(str(kernel), data=[path], shapes=["3x5x48", "4x64"])
    assert report.machine["data"] == "rows.npz (float32 rounded to bfloat16)"
    own = ("rows-2x30x48", "3x5x48", "4x64")
    assert {f"bfloat16-own-{name}" for name in own} <= {each.case for each in report.results}
    large = save_npz(tmp_path / "large.npz", {"x": np.full((2, 4), 7e4)})
    with pytest.raises(ValueError, match=r"large.npz: x must be in the range of float16; got 70"):
        tv.load_data(large, dtype="float16")


def test_what_is_missing_is_filled_in(tmp_path: Path) -> None:
    """As the judge's own cases have it, and the same each time; what is unknown is passed over."""
    x = activations()["hidden_states"]
    path = save_npz(tmp_path / "x.npz", {"x": x, "attention": x, "odd": np.arange(3)})
    operation = tv.norm("add_rms_norm", gain="zero-centred", parameters="float64")
    one, two = (tv.load_data(path, operation=operation) for _ in range(2))
    assert one.eps == EPS
    assert list(one.inputs) == ["x", "residual", "gamma", "dy", "dsum"]
    for name, array in one.inputs.items():
        other = two.inputs[name]
        assert array is not None
        assert other is not None
        assert np.array_equal(array, other)
        assert np.ptp(array) > 0
    assert one.gamma.dtype == np.float64
    assert abs(np.median(one.gamma)) < 0.5  # 1 is added to it
    tv.check(subject(operation), one)


ROWS = np.ones((2, 4))


@pytest.mark.parametrize(("arrays", "message"), [
    ({"y": np.ones(4)}, "expected an array x or input or hidden_states; got y"),
    ({"x": ROWS, "input": ROWS}, "expected one array for x; got x and input"),
    ({"x": ROWS.astype(int)}, "x must be one of float16, .*; got int64"),
    ({"x": np.float64(3)}, "x must have rows of at least one element"),
    ({"x": np.ones((0, 4))}, r"x must have rows .* got shape \(0, 4\)"),
    ({"x": ROWS, "weight": np.ones(5)}, r"gamma must have shape \(4,\), .* got \(5,\)"),
    ({"x": ROWS, "dy": ROWS.T}, r"dy must have shape \(2, 4\), .* got \(4, 2\)"),
    ({"x": ROWS, "weight": np.ones(4, np.float32)}, "gamma must be float64; got float32"),
    ({"x": np.array([[1.0, np.nan]])}, r"x must have finite numbers .* got x\[0, 1\] = nan"),
    ({"x": np.array([[1.0, 1e200]])}, r"x\[0, 1\] = 1e\+200"),
    ({"x": ROWS, "eps": np.array(-1.0)}, "eps must be finite and at least 0; got -1.0"),
    ({"x": ROWS, "eps": np.array(0.0)}, "row 0 of x is constant, and eps is 0"),
])  # fmt: skip
def test_unusable_arrays_are_an_error(
    arrays: dict[str, Array], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        tv.load_data(save_npz(tmp_path / "mine.npz", arrays))
    assert "mine.npz" in str(refused.value)


@pytest.mark.parametrize(("header", "message"), [
    ([1], "its header is no JSON"),
    ({"x": 3}, "the entry of x describes no tensor"),
    (tensor(shape=3), "the entry of x describes no tensor"),
    (tensor(dtype=["F32"]), r"x must be one of F16, .*; got \['F32'\]"),
    (tensor(shape=[1] * 70), "x must have at most 64 axes; got 70"),
    (tensor(dtype="I8", data_offsets=[0, 1]), "x must be one of F16, .*; got I8"),
    (tensor(shape=[2], data_offsets=[0, 80]), "the offsets of x are outside"),
    (tensor(shape=[-2], data_offsets=[0, 8]), "the offsets of x are outside"),
    (tensor(shape=[2], data_offsets=[8, 0]), "the offsets of x are outside"),
    (tensor(shape=[3], data_offsets=[0, 8]), r"\[3\] in F32 has 8"),
    (tensor(shape=[True]), "the offsets of x are outside"),
])  # fmt: skip
def test_every_field_of_a_header_is_checked(header: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        tv.load_data(save_raw(tmp_path / "a.safetensors", header, bytes(8)))


def test_pickles_and_other_files_are_an_error(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.array([{}], object))
    for name, message in (
        ("a.npz", "without pickle"),
        ("a.pt", "must end in .npz or .safetensors"),
        ("none.npz", "cannot read .*none.npz: No such file"),
        ("none.safetensors", "cannot read .*none.safetensors: No such file"),
    ):
        with pytest.raises(ValueError, match=message):
            tv.load_data(tmp_path / name)


@pytest.mark.parametrize(("of", "message"), [
    (lambda y: y[:-1], r"y is shape \(39, 64\) when called again"),
    (lambda _: None, "y is None when called again"),
    (lambda y: y.astype(np.float64), "y has different bits when the call is repeated"),
], ids=["a row is lost", "None", "float64"])  # fmt: skip
def test_the_second_call_is_checked(of: Callable[[Array], Array | None], message: str) -> None:
    right, case = subject(), tv.case_of_shape((40, 64))
    calls: list[Array] = []

    def forward(*given: Array) -> Array | None:
        assert right.forward is not None
        calls.append(right.forward(*given)[0])
        return calls[0] if len(calls) == 1 else of(calls[0])

    with pytest.raises(AssertionError, match=message):
        tv.check(tv.Subject(forward), case)


def test_unusable_cases_are_an_error_before_anything_is_run(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(
        "import truenorm.verify as tv\nsubject = tv.Subject(lambda *_: 1 / 0)\n", encoding="utf-8"
    )
    target = str(tmp_path / "kernel.py")
    np.savez(tmp_path / "wide.npz", x=np.full((4, 8), 1e60))
    with pytest.raises(ValueError, match=r"wide\.npz: x must be in the range of float32; got 1e"):
        verify_target(target, data=[tmp_path / "wide.npz"])
    with pytest.raises(ValueError, match=r"shape must be like 4096x5120 .*; got '4by5'"):
        verify_target(target, shapes=["4by5"])
    with pytest.raises(ValueError, match=r"cannot read .*none\.npz"):
        verify_target(target, data=[tmp_path / "none.npz"])
