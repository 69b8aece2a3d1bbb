"""Help texts of the commands that run with Typer and, where it is missing, with argparse."""

from typing import NamedTuple

JSON = "Print JSON and nothing else."
CANNOT_RUN = "2  it could not run; stderr says why"


class CommandText(NamedTuple):
    """The text of a command, and those of its options by name.

    Lines that are indented stay as they are, the others are paragraphs.
    """

    text: str
    options: dict[str, str]

    def for_program(self, program: str) -> str:
        """Return the text with the name of the program in its examples."""
        return self.text.format(program=program)

    def for_typer(self, program: str) -> str:
        """Return the text with the character that keeps lines of a block as they are."""
        return self.for_program(program).replace("\n\n    ", "\n\n\b\n    ")


DOCTOR = CommandText(
    f"""Examine and test this installation, and report problems.

Shows versions, backends, threads and the processor, and compares a few
results of each type and backend with exact answers. Takes seconds.

With --gpu, compares thousands of results of each type with those of NumPy,
bit for bit: about a minute.

The output can be pasted into an issue.

    {{program}}
    {{program}} --full > my_report.txt
    {{program}} --gpu > my_card.txt

Exit codes:

    0  healthy
    1  there are problems; the lines with -> say what to do
    {CANNOT_RUN}""",
    {
        "full": "Also judge truenorm itself, gradients included: about a minute.",
        "gpu": "Examine GPUs instead.",
        "json": JSON,
    },
)
GRADCHECK = CommandText(
    f"""Check the gradients of any hand-written backward pass.

Compares them with derivatives of the forward pass. The verdict is
INCONCLUSIVE where these derivatives are not accurate enough.

Write my_pair.py:

    import numpy as np
    def forward(x, weight):
        return np.tanh(x @ weight)
    def backward(dy, x, weight):
        g = dy * (1 - forward(x, weight) ** 2)
        return g @ weight.T, x.T @ g
    pair = forward, backward, [np.ones((2, 3)), np.eye(3)]

then run:

    {{program}} my_pair.py
    {{program}} my_pair.py:pair --method central --json

Exit codes:

    0  PASS
    1  FAIL or INCONCLUSIVE
    {CANNOT_RUN}""",
    {
        "target": "FILE.py or FILE.py:NAME, where NAME is a tuple (forward, backward, inputs) in "
        "that file (default: pair). The file is executed.",
        "method": "How to differentiate forward; auto takes the best.",
        "tol": "The allowed relative error; the default depends on method and type.",
        "probes": "Number of random projections of a large input.",
        "seed": "Seed of the random dy and projections.",
        "json": JSON,
    },
)
