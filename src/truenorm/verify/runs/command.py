"""Put a case to a program: files in a private folder, and nothing taken on trust."""

import os
import shutil
import tempfile
import time
from pathlib import Path

from truenorm.verify.operation import Case
from truenorm.verify.runs import files
from truenorm.verify.runs.calls import LARGE, Call, Record, given
from truenorm.verify.runs.program import Program
from truenorm.verify.subject import Subject
from truenorm.verify.types import Array

__all__ = ["CommandRunner"]


class CommandRunner:
    """Runs the command of a subject, a new process for each call.

    For each call a folder that only this user can enter is made. It holds ``manifest.txt`` with
    one case, and its input ``<name>.in``. The program gets the folder as its last argument, and
    must write ``<name>.out`` there: all results, or those of forward alone. Afterwards the folder
    is removed, with all processes of the program's group.

    The program runs in that folder, without a shell. If it is named with a path, it is found from
    the current directory at the time the runner is made. Its arguments are passed on as they are:
    a path among them should be absolute.

    Parameters
    ----------
    subject : Subject
        One with a command.

    Examples
    --------
    >>> import truenorm.verify as tv
    >>> from truenorm.verify.runs.command import CommandRunner
    >>> runner = CommandRunner(Subject(command=["./no-such-program"]))
    >>> print(runner.run(tv.case("float32-normal-4x2"), Call()).failure)
    cannot start './no-such-program': No such file or directory
    """

    def __init__(self, subject: Subject) -> None:
        if subject.command is None:
            raise ValueError(f"{subject.name} has no command")
        self._shown = subject.command[0]
        self._arguments = [_located(subject.command[0]), *subject.command[1:]]
        self.seconds = subject.seconds

    def run(self, case: Case, call: Call) -> Record:
        """Run the program once and return what it answered, or how it failed.

        A process keeps nothing for the next one, so that a call with another forward pass in
        between is a plain one.
        """
        asked = given(case, call)
        if not files.fits(asked):
            what = " and ".join(["rows", *case.operation.inputs_of("parameter")])
            what = what.replace(" and ", ", ", what.count(" and ") - 1)
            reason = f"a command gets {what}, all of one type: this case is another"
            return Record(case.name, call, failure=reason)
        folder = Path(tempfile.mkdtemp(prefix="truenorm-"))
        try:
            return self._run_in(folder, asked, call)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _run_in(self, folder: Path, case: Case, call: Call) -> Record:
        try:
            listing = files.manifest([case])
            (folder / files.MANIFEST).write_text(listing, encoding="ascii", newline="\n")
            files.write_input(folder, case)
        except OSError as full:
            if call.kind != LARGE:
                raise
            return Record(case.name, call, left_out=f"its input could not be written: {full}")
        start = time.perf_counter()
        failure = self._failure_of_process(folder)
        seconds = time.perf_counter() - start
        results: dict[str, Array | None] = {}
        if not failure:
            failure = files.read_results(folder / f"{case.name}.out", case, results)
        damaged = files.input_damage(folder / f"{case.name}.in", case)
        return Record(case.name, call, results, damaged, failure, seconds)

    def _failure_of_process(self, folder: Path) -> str:
        """Run the program to its end; return how it failed, or nothing."""
        try:
            process = Program([*self._arguments, str(folder)], folder)
        except (OSError, ValueError) as refused:  # ValueError: a zero byte in an argument
            reason = refused.strerror if isinstance(refused, OSError) else refused
            return f"cannot start {self._shown!r}: {reason}"
        return process.failure(self.seconds)


def _located(program: str) -> str:
    """Return where a program is, since it will be started from another folder."""
    if os.path.basename(program) != program:  # noqa: PTH119  (Path("./a") is Path("a"))
        return str(Path(program).absolute())
    found = shutil.which(program)
    return program if found is None else str(Path(found).absolute())
