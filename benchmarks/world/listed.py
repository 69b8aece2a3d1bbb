"""The list of packages in packages.toml: what to install, and the norms to judge."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.common import ROOT
from benchmarks.environments import BASE, VARIABLES, Peer

FOLDER = Path(__file__).parent
LIST = FOLDER / "packages.toml"
JUDGED = (*BASE, "python-flint==0.9.0")
"""What the process of a subject imports; python-flint reads formulas."""
ENVIRONMENT = VARIABLES | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
"""Variables of a process that runs a subject: it imports truenorm and benchmarks from here."""


class ListedNorm(NamedTuple):
    """A norm of a package: a row of the table."""

    package: "Package"
    name: str
    calls: str
    target: str
    operation: str = ""
    dtypes: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """The target for the judge: a path of PyTorch, or a file with its folder."""
        if self.target.startswith("torch:"):
            return self.target
        return str(FOLDER / "subjects" / self.target)


class Package(NamedTuple):
    """A package, its environment, and the variables that its process has."""

    name: str
    peer: Peer
    variables: Mapping[str, str]
    norms: tuple[ListedNorm, ...]

    @property
    def requirements(self) -> tuple[str, ...]:
        """Everything that is pinned, in its environment and in the one below."""
        below = self.peer.base.requirements if self.peer.base else ()
        pinned = dict.fromkeys((*below, *self.peer.requirements, *self.peer.alone))
        return tuple(each for each in pinned if each not in JUDGED)

    @property
    def environment(self) -> dict[str, str]:
        """The variables of its process."""
        return ENVIRONMENT | dict(self.variables)


class Finding(NamedTuple):
    """A finding about norms of the table: a paragraph for users, and a script."""

    title: str
    norms: tuple[str, ...]
    package: str
    reproducer: str
    text: str


class Tried(NamedTuple):
    """A package that could not be judged, and why."""

    name: str
    reason: str


def read_findings(path: Path = LIST) -> list[Finding]:
    """Read the findings."""
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    return [Finding(**{**each, "norms": tuple(each["norms"])}) for each in content["findings"]]


def read_tried(path: Path = LIST) -> list[Tried]:
    """Read the packages that could not be judged."""
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    return [Tried(**each) for each in content["tried"]]


def read_list(path: Path = LIST) -> list[Package]:
    """Read the list of packages."""
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    bases = {
        name: Peer(name, f"world/{name}", (*JUDGED, *requirements))
        for name, requirements in content["environments"].items()
    }
    return [_package(entry, bases) for entry in content["packages"]]


def _package(entry: Mapping[str, Any], bases: Mapping[str, Peer]) -> Package:
    name, base = entry["name"], bases.get(entry.get("on", ""))
    requirements, alone = entry["requirements"], tuple(entry.get("alone", ()))
    if base and not (requirements or alone):
        peer = base
    else:
        own = tuple(requirements) if base else (*JUDGED, *requirements)
        peer = Peer(name, f"world/{name}", own, alone, base)
    package = Package(name, peer, entry.get("variables", {}), ())
    norms = [
        ListedNorm(package, **{**each, "dtypes": tuple(each.get("dtypes", ()))})
        for each in entry["norms"]
    ]
    return package._replace(norms=tuple(norms))
