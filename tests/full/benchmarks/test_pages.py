"""Pages and figures show what the benchmarks make of their files of results."""

import math
import shutil
from typing import Any

import numpy as np
import pytest

from benchmarks import (
    gpu,
    pages,
    peers,
    recipes,
    roofline,
    scale,
    times,
)
from benchmarks.common import DOCS, RESULTS, fill, read_results
from benchmarks.times import Bare
from truenorm.verify.operations import parse_operation

GENERATED = {
    "command_help": "reference/commands.md",
    "gpu": "inside/gpu-registers.md",
    "harnesses": "judge/reward.md",
    "museum": "judge/museum.md",
    "peers": "inside/speed.md",
    "recipes": "reference/recipes.md",
    "twins": "inside/speed.md",
    "world.page": "judge/scoreboard.md",
}
MEASURED_BY = {name: name for name in GENERATED} | {"museum": "world", "world.page": "world"}
del MEASURED_BY["command_help"]  # from the package itself
PUBLISHED = {
    name: read_results(module.FILES[0])
    for name, module in {
        "gpu": gpu, "recipes": recipes
    }.items()
}  # fmt: skip


@pytest.mark.parametrize("name", GENERATED)
def test_page_has_the_results(name: str) -> None:
    text = (DOCS / GENERATED[name]).read_text(encoding="utf-8")
    before, fence, after = text.partition(f"```{{results}} {name}\n```")
    assert fence
    expanded = pages.expand(before) + pages.generated(name) + pages.expand(after)
    assert pages.expand(text) == expanded
    assert name not in MEASURED_BY or f"`python -m benchmarks.{MEASURED_BY[name]}`" in text


@pytest.mark.parametrize("name", MEASURED_BY)
def test_page_depends_on_its_files(name: str) -> None:
    sources = pages.sources(name)
    assert {f"{name.split('.')[-1]}.py", f"{MEASURED_BY[name]}.json"} <= {
        file.name for file in sources
    }
    assert all(file.is_file() for file in sources)


def test_every_fence_names_a_module() -> None:
    texts = [page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md")]
    named = [name for text in texts for name in pages.names_in(text)]
    assert sorted(named) == sorted(GENERATED)
    assert sum(text.count("```{results}") for text in texts) == len(named)


def test_fill_rejects_a_page_without_the_block() -> None:
    with pytest.raises(ValueError, match="no place for 'where'"):
        fill("# Scoreboard", {"where": "here"})


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("dtype", [np.uint16, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (256, 1024)])
@pytest.mark.parametrize("threads", [1, 3])
def test_copy_and_triad(dtype: Any, shape: tuple[int, ...], threads: int) -> None:
    random = np.random.default_rng(0)
    x, dy = (random.integers(0, 100, shape).astype(dtype) for _ in range(2))
    out = np.zeros(shape, dtype)
    contestants = Bare(threads).contestants(x, dy, out)
    contestants["copy"]()
    np.testing.assert_array_equal(out, x)
    contestants["triad"]()
    np.testing.assert_array_equal(out, x + dy)


class TestRecipes:
    report = PUBLISHED["recipes"]

    def test_subjects(self) -> None:
        listed = [(each.project, each.what, each.operation) for each in recipes.LISTED]
        subjects = self.report["subjects"]
        assert listed == [(each["project"], each["what"], each["operation"]) for each in subjects]
        assert len(set(listed)) == len(listed)
        for each, entry in zip(recipes.LISTED, subjects, strict=True):
            assert entry["ran"] == (each.package != recipes.FORMULA)
            assert not entry["ran"] or each.package in self.report["versions"]
            assert parse_operation(each.operation).spec == each.operation


SASS = """
        /*0000*/                   LDG.E.128 R4, [R2.64] ;
        /*0010*/                   F2F.F64.F32 R8, R4 ;
        /*0020*/              @!P0 DFMA R10, R8, R8, R12 ;
        /*0030*/                   DADD R10, R10, -R8 ;
        /*0040*/                   F2I.S64.F64.TRUNC R6, R10 ;
        /*0050*/                   F2F.BF16.F32 R6, R4 ;
        /*0060*/                   NOP ;
"""
PTX = """
    ld.global.nc.f32 \t%f1, [%rd1];
    cvt.f64.f32 \t%fd1, %f1;
    fma.rn.f64 \t%fd2, %fd1, %fd1, %fd3;
    @%p1 add.f64 \t%fd4, %fd2, %fd1;
    neg.f64 \t%fd5, %fd4;
    mov.f64 \t%fd6, %fd5;
    st.global.f64 \t[%rd2], %fd6;
    setp.gt.f64 \t%p2, %fd4, 0d0000000000000000;
    cvt.rn.f32.f64 \t%f2, %fd4;
    add.f32 \t%f3, %f2, %f1;
"""


class TestGpu:
    def test_counts(self) -> None:
        ptx = {"sums and products": 2, "comparisons": 1, "conversions": 2}
        assert gpu.count_ptx(PTX) == ptx
        sass = {"instructions": 6, "float64": 2, "conversions": 2}
        assert gpu.count_instructions(SASS) == sass

    @pytest.mark.parametrize(
        ("use", "threads", "target", "blocks"),
        [
            (gpu.Use(32, 0, 0), 128, "sm_80", 16),  # 2048 threads, and as many registers
            (gpu.Use(33, 0, 0), 128, "sm_80", 12),  # 1280 registers a warp, 51 warps
            (gpu.Use(64, 0, 0), 1024, "sm_120", 1),  # 1536 threads
            (gpu.Use(16, 0, 0), 32, "sm_120", 24),
            (gpu.Use(128, 0, 0), 512, "sm_90", 1),
            (gpu.Use(16, 0, 40 * 1024), 64, "sm_80", 4),  # 164 KB
        ],
    )
    def test_blocks_at_once(self, use: gpu.Use, threads: int, target: str, blocks: int) -> None:
        """Worked out by hand from the formula."""
        assert gpu.blocks_at_once(use, threads, gpu.MULTIPROCESSORS[target]) == blocks


class TestCost:
    """Figures and tables of docs/learn."""

    def test_page_has_the_model(self) -> None:
        page = times.PAGE.read_text(encoding="utf-8")
        report = read_results(RESULTS / "cost_model.json")
        assert fill(page, {"model": times.model_table(report)}) == page


class TestRoofline:
    def test_by_hand(self) -> None:
        """An H100 moves 3.35 TB, does 17e12 multiply-adds, issues 34e12 instructions a second."""
        times = roofline.limits(roofline.CARDS["H100"], "correct", "forward", "float32")
        copied = 8 / 3.35
        assert times["memory"] == 1
        assert times["float64"] == pytest.approx(12 / 17 / copied)
        assert times["instructions"] == pytest.approx(29 / 34 / copied)

    def test_shares_are_traffic(self) -> None:
        """Of a run of 16 rows: 40 bytes a column, beside 12 an element."""
        times = roofline.limits(roofline.CARDS["H100"], "fast", "backward", "float32")
        assert times["memory"] == pytest.approx(1 + 40 / 16 / 12)

    def test_page_has_the_table(self) -> None:
        page = roofline.PAGE.read_text(encoding="utf-8")
        assert fill(page, roofline.blocks()) == page

    def test_counts_are_those_of_ptx(self) -> None:
        """PTX counts apply where rows are in registers, which is the case for forward."""
        wanted = {"kernel": "forward", "norm": "layer norm"}
        operations = PUBLISHED["gpu"]["operations"]
        (counts,) = [each["counts"] for each in operations if wanted.items() <= each.items()]
        mine = roofline.COUNTS["correct", "forward", "float32"]
        assert counts["sums and products"] + counts["comparisons"] == mine.float64
        assert counts["conversions"] == mine.conversions


class TestScale:
    def test_allreduce_by_hand(self) -> None:
        network = scale.Network(latency=1.0, bandwidth=2.0, adding=4.0)
        assert network.allreduce(1, 8.0) == 0
        # Recursive doubling: one step of 1 + 4 + 2. The others send twice: 2 + 2*4/2 + 4/4.
        assert network.allreduce(2, 8.0) == 7
        # Rabenseifner: 2*2 + 2*6000/2 + 6000/4; doubling would take 2*(1 + 4000 + 2000).
        assert network.allreduce(4, 8000.0) == 7504
        # A short message goes by doubling: three steps.
        assert network.allreduce(5, 0.0) == 3

    def test_page_has_the_tables(self) -> None:
        page = scale.PAGE.read_text(encoding="utf-8")
        assert fill(page, scale.blocks(scale.Model(), scale.Network())) == page

    @pytest.mark.parametrize("delta", [1e-3, 1e-6])
    def test_probability_is_the_integral(self, delta: float) -> None:
        """E min(1, delta/|Z|) by the trapezoidal rule in log z: (L10) omits delta squared."""
        z = np.exp(np.linspace(math.log(1e-12), math.log(40), 200_001))
        density = math.sqrt(2 / math.pi) * np.exp(-z * z / 2)
        integral = float(np.trapezoid(np.minimum(1, delta / z) * density * z, np.log(z)))
        relative_error = delta * math.log(2) / 2**24
        assert scale.expected(relative_error) == pytest.approx(integral, rel=1e-3)


class TestSpeed:
    """docs/inside/speed.md claims what results/peers.json has."""

    report = read_results(peers.FILE)
    page = (DOCS / "inside" / "speed.md").read_text(encoding="utf-8")

    def test_tables(self) -> None:
        assert fill(self.page, peers.tables(self.report)) == self.page

    def test_goals(self) -> None:
        text = peers.README.read_text(encoding="utf-8")
        assert fill(text, {"goals": peers.goals_table(self.report)}) == text
