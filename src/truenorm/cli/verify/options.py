"""The options of ``truenorm verify``, each with its help."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from truenorm.cli.output import Dtype, file_option, json_option

__all__ = [
    *("Baseline", "Cases", "Data", "Dtypes", "EqualTo", "GradeName", "Html", "Jobs", "Json"),
    *("Kappa", "Largest", "Level", "LevelName", "OperationWords", "RecipeName", "Require"),
    *("Seed", "Shapes", "StartSeconds", "Target", "UpdateBaseline"),
]

LevelName = Literal["quick", "full"]
GradeName = Literal["wrong", "unstable", "conditional", "stable", "faithful", "correct"]

Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="A Python file, and after a colon the name of the Subject in it "
        "('subject' if no name is given). The file is executed. Or torch:PATH, a function or "
        "a module of PyTorch as it is imported, such as torch:torch.nn.functional.rms_norm; "
        "--operation says what it computes.",
        show_default=False,
    ),
]
OperationWords = Annotated[
    str,
    typer.Option(
        metavar="NAME[,OPTION=...]",
        help="What it computes: layer_norm, rms_norm, add_layer_norm or add_rms_norm; then, "
        "with commas before them, what is not the usual: gain=zero-centred, beta=true, "
        "parameters=TYPE, result=TYPE, sum=unrounded.",
        show_default="what the subject says, which is layer_norm unless it says otherwise",
    ),
]
RecipeName = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Where it must round on the way to 16 bits, such as late or early. "
        "By default, whatever recipe it has is told.",
        show_default=False,
    ),
]
Largest = Annotated[
    float | None,
    typer.Option(
        metavar="NUMBER",
        help="The largest |x| that it claims to be right for, such as 1e4: "
        "what is beyond is left out of the grade.",
        show_default=False,
    ),
]
Kappa = Annotated[
    float | None,
    typer.Option(
        metavar="NUMBER",
        help="The same of the condition number rms(x)/sqrt(var + eps).",
        show_default=False,
    ),
]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ROWSxD",
        help="Judge it on ordinary rows of this shape as well, such as 4096x5120 or "
        "8x1024x4096, in every type; may be given again for others.",
        show_default=False,
    ),
]
Data = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE",
        help="And on saved tensors: a .npz or .safetensors file with x (or input, "
        "hidden_states), and if you like gamma (weight), beta (bias), dy (grad), residual, "
        "dsum and eps. May be given again.",
        show_default=False,
    ),
]
Level = Annotated[LevelName, typer.Option(help="How much to try: some seconds, or some minutes.")]
Require = Annotated[GradeName, typer.Option(help="The lowest grade that passes.")]
Dtypes = Annotated[
    list[Dtype] | None,
    typer.Option(
        metavar="TYPE",
        help="Judge this type alone, such as float32; may be given again for others. "
        "By default, all that the subject declares; of torch:PATH, float32 and bfloat16.",
        show_default=False,
    ),
]
StartSeconds = Annotated[
    float, typer.Option(help="How long the file may take to import, or to compile.")
]
Baseline = Annotated[
    Path | None,
    file_option(
        "A file of known findings, which pass and are listed; new ones fail, and vanished "
        "ones are told."
    ),
]
UpdateBaseline = Annotated[
    bool,
    typer.Option(
        "--update-baseline",
        help="Write what is found now to that file; reasons in it are kept.",
    ),
]
EqualTo = Annotated[
    str,
    typer.Option(
        metavar="TARGET",
        help="Compare the bits with those of this subject instead: where they differ, by how "
        "much, and which of the two is nearer to the exact answer.",
        show_default=False,
    ),
]
Json = Annotated[bool, json_option("the report")]
Html = Annotated[Path | None, file_option("Also write the report, with plots, to one HTML file.")]
Cases = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="Instead of a report, judge it on so many new cases, drawn from the families, and "
        "print a summary.",
        show_default=False,
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        metavar="S",
        min=1,
        help="What --cases draws them with; the same ones for the same seed.",
        show_default="1",
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="Judge by so many processes, each with a subject of its own; the report is the same.",
        show_default=False,
    ),
]
