"""Pages and figures show what the benchmarks make of their files of results."""

import json
import math
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import (
    campaign,
    gpu,
    holes,
    imitations,
    pages,
    peers,
    recipes,
    roofline,
    scale,
    times,
)
from benchmarks.common import DOCS, FIGURES, RESULTS, fill, read_results
from benchmarks.subjects import truenorm_subjects
from benchmarks.times import Bare
from truenorm.cost import layer_norm_cost
from truenorm.verify.grading.report import Recipe
from truenorm.verify.operations import parse_operation

GENERATED = {
    "campaign": "judge/campaign.md",
    "command_help": "reference/commands.md",
    "gpu": "inside/gpu-registers.md",
    "harnesses": "judge/reward.md",
    "holes": "judge/holes.md",
    "museum": "judge/museum.md",
    "peers": "inside/speed.md",
    "recipes": "reference/recipes.md",
    "world.page": "judge/scoreboard.md",
}
MEASURED_BY = {name: name for name in GENERATED} | {"museum": "scoreboard", "world.page": "world"}
del MEASURED_BY["command_help"]  # from the package itself
PUBLISHED = {
    name: read_results(module.FILES[0])
    for name, module in {
        "campaign": campaign, "gpu": gpu, "holes": holes, "recipes": recipes
    }.items()
}  # fmt: skip


@pytest.mark.parametrize("name", GENERATED)
def test_page_has_the_results(name: str) -> None:
    text = (DOCS / GENERATED[name]).read_text(encoding="utf-8")
    assert pages.names_in(text) == [name]
    before, _, after = text.partition(f"```{{results}} {name}\n```")
    assert pages.expand(text) == before + pages.generated(name) + after
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


@pytest.mark.parametrize("name", GENERATED)
def test_grades_have_a_colour(name: str) -> None:
    styles = (DOCS / "_static" / "results.css").read_text(encoding="utf-8")
    for grade in set(re.findall(r"\{\.(grade-[a-z]+)\}", pages.generated(name))):
        assert re.search(rf"\.{grade}\b[^{{]*\{{ background", styles), grade


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


class TestCampaign:
    report = PUBLISHED["campaign"]

    def test_subjects(self) -> None:
        """The file may name the backend "fused", which "native" replaced."""
        names = [each.name for each in truenorm_subjects.BY_BACKEND.values()]
        for name, subject in truenorm_subjects.BY_BACKEND.items():
            # Workers load a subject by its name in the module.
            assert getattr(truenorm_subjects, name.replace(", ", "_")) is subject
        campaigns = self.report["campaigns"]
        assert [each["subject"].replace("fused", "native") for each in campaigns] == names
        for each in campaigns:
            dtypes = {result["dtype"] for result in each["results"]}
            assert dtypes == set(truenorm_subjects.DTYPES)

    def test_ten_million_elements_and_none_is_wrong(self) -> None:
        total = self.report["total"]
        assert total["elements"] > total["answers"] > 1e7
        for each in self.report["campaigns"]:
            assert (each["wrong"], each["failed"], each["not_run"]) == (0, 0, 0)
            assert {result["grade"] for result in each["results"]} == {"correct"}
        for name in ("elements", "answers", "cases"):
            assert total[name] == sum(each[name] for each in self.report["campaigns"])


AUDITS = {(each["project"], each["what"]): each for each in PUBLISHED["holes"]["audits"]}


class TestHoles:
    def passed(self, project: str, what: str) -> dict[str, Any]:
        outcomes = AUDITS[project, what]["outcomes"]
        return {each["name"]: each for each in outcomes if not each["caught"]}

    def test_subjects(self) -> None:
        assert list(AUDITS) == [(each.project, each.what) for each in holes.LISTED]
        for each in holes.LISTED:
            audit = AUDITS[each.project, each.what]
            assert (audit["taken"], audit["command"]) == (each.taken, each.command)
            assert hasattr(imitations, each.test.partition("[")[0])
            for target in filter(None, (each.task.replace, each.task.backward)):
                assert hasattr(imitations, target.partition(":")[2])

    @pytest.mark.parametrize(
        ("project", "what", "kernel"),
        [
            ("vLLM", "RMSNorm, H = 5120", "no reduction"),
            ("vLLM", "add + RMSNorm, H = 768", "zeros for the sum"),
            ("vLLM", "add + RMSNorm, H = 5120", "zeros for the sum"),
            ("FlashInfer", "RMSNorm in e4m3fn", "zeros"),
            (
                "FlashInfer",
                "layer norm of diffusion transformers in NVFP4",
                "no reduction, normal",
            ),
            ("TensorRT-LLM", "add + RMSNorm in NVFP4", "other eps"),
            ("aiter", "add + RMSNorm in int8", "not rounded"),
            ("fla", "RMSNorm in int8", "one scale"),
            ("Liger", "RMSNorm", "no gamma"),
            ("apex", "layer norm", "zeros for dgamma"),
            ("KernelBench", "40_LayerNorm", "no reduction, uniform"),
        ],
    )
    def test_wrong_kernel_passes(self, project: str, what: str, kernel: str) -> None:
        assert self.passed(project, what)[kernel]["witness"]["symptom"]

    def test_counts_and_names(self) -> None:
        text = holes.page(PUBLISHED["holes"])
        assert "| quack, RMSNorm | [3 of 22]{.grade-fail} | eps outside the root, no eps," in text
        assert "| strict, RMSNorm | [0 of 22]{.grade-pass} | none |" in text
        assert text.index("3 of 22") < text.index("## Details") < text.index("### quack, RMSNorm")

    def test_only_keeps_other_results(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        output = tmp_path / "holes.json"
        output.write_text(json.dumps(PUBLISHED["holes"]))
        new = {**AUDITS["apex", "layer norm"], "calls": 1234}
        monkeypatch.setattr(holes, "audited", lambda *_: new)
        monkeypatch.chdir(tmp_path)
        holes.main(["--only", "apex", "--output", str(output)])
        audits = json.loads(output.read_text())["audits"]
        expected = [new if each["project"] == "apex" else each for each in AUDITS.values()]
        assert audits == expected

    def test_none_passes_strict_tests(self) -> None:
        for project, what in AUDITS:
            if project.startswith("none"):
                assert self.passed(project, what) == {}


def recipe_entry(**recipe: Any) -> dict[str, Any]:
    shares = {"shares": {"early": 0.5, "late": 0.9}, "grades": {"y": "stable"}}
    return {
        "project": "P",
        "what": "W",
        "operation": "rms_norm",
        "ran": True,
        "recipes": {"bfloat16": {"names": [], **shares, **recipe}},
    }


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

    def test_targets_exist(self) -> None:
        for each in recipes.LISTED:
            file, _, name = each.target.rpartition(":")
            if file.endswith(".py"):
                text = (recipes.SUBJECTS / file).read_text(encoding="utf-8")
                assert f"\n{name} = " in text, each

    def test_all_of_them_ran(self) -> None:
        for each in self.report["subjects"]:
            assert each["recipes"]
            assert all("failed" not in recipe for recipe in each["recipes"].values()), each

    @pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
    @pytest.mark.parametrize(
        ("project", "what", "operation", "name"),
        [
            ("PyTorch", "rms_norm", "rms_norm", "late"),
            ("PyTorch", "layer_norm", "layer_norm", "late"),
            ("Hugging Face", "LlamaRMSNorm", "rms_norm", "early"),
            ("Hugging Face", "T5LayerNorm", "rms_norm", "early"),
            ("Hugging Face", "GemmaRMSNorm", "rms_norm,gain=zero-centred", "late"),
            ("MLX", "fast.rms_norm", "rms_norm", "early"),
            ("Liger", 'RMSNorm, "none"', "rms_norm", "none"),
            ("FlashInfer", "fused_add_rmsnorm", "add_rms_norm", "late, of the unrounded sum"),
        ],
    )
    def test_published_recipe(
        self, project: str, what: str, operation: str, name: str, dtype: str
    ) -> None:
        place = {"project": project, "what": what, "operation": operation}
        (subject,) = (each for each in self.report["subjects"] if place.items() <= each.items())
        recipe = subject["recipes"][dtype]
        assert recipe["names"][0] == name
        assert recipe["shares"][name] > 0.99

    @pytest.mark.parametrize(
        ("subject", "line"),
        [
            (
                recipe_entry(names=["late", "apex"]),
                "| **late** (apex) | rms_norm | late 90.00; early 50.00 | - |",
            ),
            (recipe_entry(), "| no recipe fits | rms_norm | late 90.00; early 50.00 | - |"),
            (
                recipe_entry(grades={"y": "wrong"}),
                "| no recipe fits, y is wrong | rms_norm | late",
            ),
            (
                {**recipe_entry(), "operation": "rms_norm,result=float32"},
                "| nothing is rounded to 16 bits | rms_norm, result=float32 | late",
            ),
            (recipe_entry(failed="raised"), "| fails: raised | rms_norm | - | - |"),
            (
                {**recipe_entry(), "cannot": "no module"},
                "| cannot run: no module | rms_norm | - | - |",
            ),
        ],
    )
    def test_line_of_the_table(self, subject: dict[str, Any], line: str) -> None:
        assert line in recipes.page({**self.report, "subjects": [subject]})

    def test_summary(self) -> None:
        recipe = Recipe("float16", "late", {"late": 0.99999996, "early": 0.5}, {"late": ("apex",)})
        assert recipes.summary(recipe) == {
            "names": ["late", "apex"],
            "shares": {"late": 1.0, "early": 0.5},
        }


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

    def test_summary(self) -> None:
        """The most registers and spilled bytes of a row length, over targets, types and norms."""
        about = {"compiler": "clang", "kernel": "forward", "size": 4096, "norm": "RMSNorm"}
        records = [
            {**about, "dtype": "float32", "target": target, "use": use._asdict()}
            for target, use in {
                "gfx90a": gpu.Use(90, 0, 0, 4),
                "gfx942": gpu.Use(70, 24, 0, 4),
            }.items()
        ]
        text = gpu.page({**PUBLISHED["gpu"], "kernels": records})
        assert text.startswith("1 of 2 compiled kernels spill registers to memory: forward by")
        assert "| forward | clang | - | [90, spills 24]{.grade-fail} | - | - |" in text
        assert "<summary>clang: RMSNorm, float32</summary>" in text
        assert "| 90 / 4 | [70 / 4, spills 24]{.grade-fail} |" in text


class TestCost:
    """Figures and tables of docs/learn."""

    def test_page_has_the_model(self) -> None:
        page = times.PAGE.read_text(encoding="utf-8")
        report = read_results(RESULTS / "cost_model.json")
        assert fill(page, {"model": times.model_table(report)}) == page

    @pytest.mark.parametrize("direction", ["forward", "backward"])
    def test_figures(self, direction: str) -> None:
        """Arrays in fusion.svg, and bytes an element in cost.svg."""
        shape, elements = (8, 1024, 4096), 8 * 1024 * 4096
        forms: Any = (("textbook", "xhat"), ("blocked", "x"), ("fused", "x"))
        for form, keep in forms:
            counted = layer_norm_cost(shape, "float32", form, keep).passes[direction]
            moved = f"{counted.bytes_moved / elements:.0f}"
            assert f">{moved}</text>" in (FIGURES / "cost.svg").read_text(encoding="utf-8")
            arrays = round(counted.bytes_moved / 4 / elements)
            kind = "unfused" if form == "textbook" else "fused"
            figure = (FIGURES / "fusion.svg").read_text(encoding="utf-8")
            assert f">{direction}, {kind}: {arrays} arrays" in figure


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

    def test_norm_by_norm_is_as_many_calls(self) -> None:
        network = scale.Network()
        times = scale.Model(columns=16, norms=3, exact_bytes=50).times(6, network)
        assert times.plain == pytest.approx(1e3 * network.allreduce(6, 3 * 16 * 8))
        assert times.exact_by_layer == pytest.approx(
            3e3 * (network.allreduce(6, 40) + network.allreduce(6, 16 * 50))
        )

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


MODES = ("truenorm correct, out=", "truenorm correct", "truenorm fast, out=", "truenorm fast")
TEXTBOOKS = ("textbook NumPy", "textbook in float64, then cast")


def from_to(numbers: Sequence[float]) -> str:
    """Return the smallest and the largest number, or one if they are equal."""
    ends = [f"{each:.1f}" for each in (min(numbers), max(numbers))]
    return " to ".join(dict.fromkeys(ends))


class TestSpeed:
    """docs/inside/speed.md claims what results/peers.json has."""

    report = read_results(peers.FILE)
    page = (DOCS / "inside" / "speed.md").read_text(encoding="utf-8")

    def ratios(self, direction: str, mode: str, rival: str, where: Any) -> list[float]:
        times = peers.times_of(self.report, direction)
        return [taken[mode] / taken[rival] for shape, taken in times.items() if where(shape)]

    @staticmethod
    def large(shape: str) -> bool:
        """Return True from 32 MB on."""
        return 4e-6 * math.prod(map(int, shape.split("x"))) >= 32

    @staticmethod
    def one_row(shape: str) -> bool:
        return shape.startswith("1x1x")

    @staticmethod
    def every(_: str) -> bool:
        return True

    def test_tables(self) -> None:
        assert fill(self.page, peers.tables(self.report)) == self.page

    def test_goals(self) -> None:
        text = peers.README.read_text(encoding="utf-8")
        assert fill(text, {"goals": peers.goals_table(self.report)}) == text

    def test_contestants_that_write_to_an_existing_array(self) -> None:
        places = {(each["contestant"], each["writes_to"]) for each in self.report["figures"]}
        existing = {name for name, place in places if place == "existing array"}
        assert existing == {"ONNX Runtime", *(mode for mode in MODES if "out=" in mode)}
        assert "ONNX Runtime and the lines with out= write to an array that exists" in self.page

    def span(self, direction: str, mode: str, rival: str, where: Any) -> str:
        """Return the smallest and the largest ratio as the page writes them."""
        return from_to(self.ratios(direction, mode, rival, where))

    def test_below_32_megabytes(self) -> None:
        def more_rows(shape: str) -> bool:
            return not self.large(shape) and not self.one_row(shape)

        fast, correct = "truenorm fast, out=", "truenorm correct, out="
        for start, where in (("- Forward of one row", self.one_row),
                             ("- For 256 rows up to 8 MB, forward", more_rows)):  # fmt: skip
            forward, backward = (
                [self.span(direction, mode, "PyTorch", where) for mode in (fast, correct)]
                for direction in ("forward", "backward")
            )
            assert (
                f"{start} takes {forward[0]} times as long as PyTorch's in fast mode, "
                f"and {forward[1]} times in correct mode.\n"
                f"  Backward takes {backward[0]} and {backward[1]} times as long.\n"
            ) in self.page

    def test_from_32_megabytes_on(self) -> None:
        assert (
            "From 32 MB on, both modes with `out=` are faster than every other package but "
        ) in self.page
        fast, correct = "truenorm fast, out=", "truenorm correct, out="
        for direction in ("forward", "backward"):
            for rival in [*TEXTBOOKS, "thinc", "PyTorch", "JAX"]:
                for mode in (fast, correct):
                    assert max(self.ratios(direction, mode, rival, self.large)) < 1
        spans = [
            self.span("forward", mode, "ONNX Runtime", self.large) for mode in (fast, correct)
        ]
        assert (
            f"Forward takes {spans[0]} times as long as ONNX Runtime's in fast mode, "
            f"and {spans[1]} times in correct mode.\n"
        ) in self.page

    def test_textbooks(self) -> None:
        plain, wide = TEXTBOOKS
        one, large, casts = [], [], []
        for direction in ("forward", "backward"):
            casts += self.ratios(direction, wide, plain, self.every)
            for mode in ("truenorm fast, out=", "truenorm correct, out="):
                one += self.ratios(direction, plain, mode, self.one_row)
                large += self.ratios(direction, plain, mode, self.large)
                assert min(self.ratios(direction, plain, mode, self.every)) > 1
        assert (
            f"is slower than both modes, {min(one):.1f} to {max(one):.1f} times on one row "
            f"and {min(large):.0f} to {max(large):.0f} times from 32 MB on.\n"
            f"In float64, with the result cast, it takes {min(casts):.1f} to {max(casts):.1f} "
            "times as long again.\n"
        ) in self.page

    def test_new_arrays(self) -> None:
        taken = peers.times_of(self.report, "forward")["8x1024x4096"]
        modes = ("truenorm correct", "truenorm fast")
        ratios = [taken[mode] / taken[f"{mode}, out="] for mode in modes]
        backward = self.span("backward", "truenorm correct", "PyTorch", self.large)
        assert (
            f"at 8x1024x4096, forward without `out=` takes {from_to(ratios)} times as long as "
            "with it.\n"
            f"  From 32 MB on, correct backward without it takes {backward} times as long as "
            "PyTorch's.\n"
        ) in self.page

    def test_text_for_the_figure(self) -> None:
        modes = ("truenorm correct, out=", "truenorm fast, out=")
        forward, backward = (
            [
                ratio
                for mode in modes
                for ratio in self.ratios(d, mode, "PyTorch", lambda s: not self.large(s))
            ]
            for d in ("forward", "backward")
        )
        assert (
            f"below 32 MB truenorm takes {min(forward):.1f} to {max(forward):.1f} times as long "
            f"as PyTorch forward and {min(backward):.1f} to {max(backward):.1f} times as long "
            "backward; on larger arrays, fast mode takes less than half of its time"
        ) in self.page
        for direction in ("forward", "backward"):
            assert max(self.ratios(direction, modes[1], "PyTorch", self.large)) < 0.5

    def test_figure_is_drawn_from_these_results(self) -> None:
        """It has the date, and a mark for each contestant and shape in each panel."""
        text = (FIGURES / "peers.svg").read_text(encoding="utf-8")
        assert self.report["machine"]["date"] in text
        assert ("not quiet" in text) != self.report["quiet"]
        for shape in peers.times_of(self.report, "forward"):
            assert f">{shape}<" in text
        for name in ("truenorm correct", "truenorm fast", "textbook", "float64, then cast"):
            assert text.count(f">{name}<") == 2
        for name in ("JAX", "ONNX Runtime", "PyTorch"):
            assert f">{name}<" in text
