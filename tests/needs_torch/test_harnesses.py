"""Submissions to KernelBench and FlashInfer-Bench as subjects."""

from pathlib import Path

import pytest

pytest.importorskip("torch")

import truenorm.verify as tv
from needs_torch import other_tasks as tasks
from truenorm.verify.collecting import collect
from truenorm.verify.grading.grades import grade
from truenorm.verify.grading.report import Report
from truenorm.verify.running.runners import InProcess

SMALL, FAMILIES = 600, 12
"""Elements of x, and the number of cases that are judged."""
OPERATIONS = {
    "34_InstanceNorm": "instance_norm,eps=1e-05,gamma=false",
    "35_GroupNorm_": "group_norm,eps=1e-05,groups=2",
    "36_RMSNorm_": "rms_norm,eps=1e-05,gamma=false,over=channels",
    "37_FrobeniusNorm_": "rms_norm,eps=0.0,divisor=sum,gamma=false",
    "39_L2Norm_": "rms_norm,eps=0.0,divisor=sum,gamma=false",
    "40_LayerNorm": "layer_norm,eps=1e-05,axes=3",
}


def judged(subject: tv.Subject) -> Report:
    """Judge a subject on one small case of each family."""
    (dtype,) = subject.dtypes
    suite = tv.cases(dtype, operation=subject.operation)
    few = {case.family: case for case in suite if case.x.size <= SMALL and case.shape[1] > 8}
    cases = list(few.values())[:FAMILIES]
    assert len(cases) > FAMILIES // 2
    records = collect(InProcess(subject), cases)
    return grade(subject.name, cases, records, outputs=subject.outputs, require="stable")


def grade_of(report: Report, output: str = "y") -> str:
    return next(each.grade for each in report.grades if each.output == output)


def spec_of(subject: tv.Subject) -> str:
    return subject.operation.spec


def kernelbench(folder: Path, name: str, solution: str) -> tv.HarnessSubject:
    problem = tasks.write(folder, f"{name}.py", tasks.PROBLEMS[name])
    return tv.kernelbench(problem, tasks.write(folder, "solution.py", solution))


@pytest.mark.parametrize("name", tasks.SOLUTIONS)
def test_solutions_of_kernelbench(tmp_path: Path, name: str) -> None:
    subject = kernelbench(tmp_path, name, tasks.SOLUTIONS[name])
    assert spec_of(subject) == OPERATIONS[name]
    assert subject.outputs == ("y",)
    report = judged(subject)
    assert report.passed, report.findings
    # In float64 and rounded once, but for sigmoids in float64 of 88, which are as good.
    assert grade_of(report) in ("correct", "faithful", "stable")


@pytest.mark.parametrize("name", tasks.SOLUTIONS)
def test_the_problem_itself_is_a_solution(tmp_path: Path, name: str) -> None:
    """Its parameters have the names of the problem, and float32 is not wrong."""
    solution = tasks.PROBLEMS[name].replace("class Model(", "class ModelNew(")
    assert grade_of(judged(kernelbench(tmp_path, name, solution))) != "wrong"


@pytest.mark.parametrize("name", tasks.SOLUTIONS)
def test_wrong_solutions_of_kernelbench(tmp_path: Path, name: str) -> None:
    """Half of each row's squares are left out."""
    solution = tasks.SOLUTIONS[name].replace("c / torch.sqrt(", "c / torch.sqrt(0.5 * ")
    assert solution != tasks.SOLUTIONS[name]
    assert grade_of(judged(kernelbench(tmp_path, name, solution))) == "wrong"


@pytest.mark.parametrize("name", ["35_GroupNorm_", "40_LayerNorm"])
def test_parameters_must_be_used(tmp_path: Path, name: str) -> None:
    """With gamma 1 and beta 0, as in the problem, this would not show."""
    solution = tasks.SOLUTIONS[name]
    for parameter in ("gamma", "scale_weight"):
        used, ignored = f" * self.{parameter}.double()", f" * (0 * self.{parameter} + 1).double()"
        solution = solution.replace(used, ignored)
    assert solution != tasks.SOLUTIONS[name]
    assert grade_of(judged(kernelbench(tmp_path, name, solution))) == "wrong"


@pytest.mark.parametrize(
    ("definition", "run", "returns", "spec"),
    [
    (tasks.DEFINITION, tasks.RUN, False, "rms_norm,eps=1e-06"),
    (tasks.DEFINITION, tasks.RETURNING_RUN, True, "rms_norm,eps=1e-06"),
    (tasks.FUSED_DEFINITION, tasks.FUSED_RUN, False,
     "add_rms_norm,sum=unrounded,eps=1e-06"),
    ],
)  # fmt: skip
def test_flashinfer_bench(
    tmp_path: Path, definition: object, run: str, returns: bool, spec: str
) -> None:
    path = tasks.write(tmp_path, "definition.json", definition)
    solution = tasks.write(tmp_path, "main.py", run)
    subject = tv.flashinfer_bench(path, solution, returns=returns)
    assert (spec_of(subject), subject.dtypes, subject.form) == (spec, ("bfloat16",), "out")
    assert judged(subject).passed
    other = tasks.write(tmp_path, "other.py", run.replace("EPS = 1e-6", "EPS = 1.0"))
    assert grade_of(judged(tv.flashinfer_bench(path, other, returns=returns))) == "wrong"


@pytest.mark.parametrize("returns", [False, True])
def test_solution_in_json(tmp_path: Path, returns: bool) -> None:
    """It has two files, one of which imports the other."""
    path = tasks.write(tmp_path, "definition.json", tasks.DEFINITION)
    content = tasks.solution(tasks.RETURNING_RUN if returns else tasks.RUN, returns=returns)
    subject = tv.flashinfer_bench(path, tasks.write(tmp_path, "mine.json", content))
    assert (subject.name, spec_of(subject)) == ("mine", "rms_norm,eps=1e-06")
    assert judged(subject).passed
    wrong = tasks.solution(tasks.RUN.replace("EPS = 1e-6", "EPS = 1.0"), returns=False)
    other = tv.flashinfer_bench(path, tasks.write(tmp_path, "other.json", wrong))
    assert grade_of(judged(other)) == "wrong"


def test_scores(tmp_path: Path) -> None:
    """The file that a score gets needs PyTorch alone."""
    name = "35_GroupNorm_"
    honest = kernelbench(tmp_path, name, tasks.SOLUTIONS[name])
    assert tv.score(honest, seed=81, cases=40).value > 0.8
    calls = tasks.PROBLEMS[name].replace("class Model(", "class ModelNew(")
    own = tv.score(kernelbench(tmp_path, name, calls), seed=81, cases=40, norms="forbidden")
    assert own.value == 0
    path = tasks.write(tmp_path, "definition.json", tasks.DEFINITION)
    solution = tasks.write(tmp_path, "main.py", tasks.RUN)
    assert tv.score(tv.flashinfer_bench(path, solution), seed=81, cases=40).value > 0.8
