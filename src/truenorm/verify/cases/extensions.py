"""Cases that are put only to a subject that asks for them."""

from collections.abc import Iterator
from dataclasses import replace

from truenorm.verify.cases.family import PLAIN_X, Family
from truenorm.verify.cases.patterns import filled
from truenorm.verify.operation import Case, Operation

__all__ = ["extensions"]


def extensions(operation: Operation, dtype: str, seed: int = 0) -> Iterator[Case]:
    """Yield a case or two for each extension that an operation has."""
    for case in _all(operation, dtype, seed):
        if case.needs <= operation.extensions.keys():
            yield case


def _all(operation: Operation, dtype: str, seed: int) -> Iterator[Case]:
    def plain(slug: str, why: str, needs: str, repeats: int = 1) -> Case:
        family = Family(slug, PLAIN_X[1], "ordinary", why, repeats=repeats)
        case = family.case(operation, dtype, 6, 67, seed)
        return replace(case, needs=frozenset([needs]))

    parameters = operation.inputs_of("parameter")
    for name in parameters:
        case = plain(f"no-{name}", f"{name} is None", f"no-{name}")
        yield case.with_inputs(**{name: None})
    case = plain("three-axes", "x has the shape (2, 3, 67)", "ranks")
    yield replace(case, layout="three-axes")
    case = plain("one-axis", "x has the shape (67,)", "ranks")
    yield replace(case.part(slice(0, 1)), layout="one-axis")
    case = plain("strided", "x and dy have gaps along the last axis", "strides")
    yield replace(case, layout="strided")
    case = plain("padded-rows", "x and dy are slices of a wider array", "padded-rows")
    yield replace(case, layout="padded")
    why = "dy lies in memory otherwise than x"
    yield plain("layouts-of-gradients", why, "layouts-of-gradients")
    why = "rows whose dy is zero come in, below the others and among them"
    yield plain("idle-rows", why, "idle-rows", repeats=50)
    yield replace(plain("zero-eps", "eps is 0", "zero-eps"), eps=0.0)
    yield replace(plain("tiny-eps", "eps is a float64", "tiny-eps"), eps=1e-5)
    yield plain("empty", "x has no rows", "empty").part(slice(0, 0))
    if dtype != "float32":
        why = f"{', '.join(parameters)} are float32"
        case = plain("wide-parameters", why, "float32-parameters")
        wide = (filled("random", "float32", (67,), f"{case.name} {k}") for k in range(9))
        yield case.with_inputs(**dict(zip(parameters, wide, strict=False)))
