"""What a norm is judged on only where a subject claims it."""

from truenorm.verify.operations.norms.definition import Definition

__all__ = ["extensions_of", "not_in_files"]

IN_NO_FILE = ("ranks", "strides", "padded-rows", "layouts-of-gradients", "float32-parameters")


def extensions_of(norm: Definition) -> dict[str, str]:
    """Return them, and what each means."""
    absent = {
        f"no-{name}": f"{name} is None, and nobody looks at d{name}" for name in norm.parameters
    }
    rows = " and ".join(each.name for each in norm.inputs if each.role != "parameter")
    arriving = "dy and dsum lie" if norm.adds else "dy lies"
    sums = " and ".join(f"d{name}" for name in norm.parameters)
    are = "is" if len(norm.parameters) == 1 else "are"
    found = {
        **absent,
        "ranks": "x has one axis, or three",
        "strides": f"{rows} are views with gaps along the last axis",
        "padded-rows": f"{rows} are views with gaps between rows, as slices of a wider array",
        "layouts-of-gradients": f"{arriving} in memory otherwise than x, or can only be read",
        "idle-rows": f"rows whose dy is zero change no bit of {sums}",
        "zero-eps": f"eps is 0, and no row is {'constant' if norm.centred else 'zero'}",
        "tiny-eps": "eps is a number that float32 does not have",
        "empty": "x has no rows",
    }
    if not norm.parameter_type:
        all_of_them = " and ".join(norm.parameters)
        found["float32-parameters"] = f"{all_of_them} {are} float32 whatever x is"
    return found


def not_in_files(norm: Definition) -> frozenset[str]:
    """Return those that the files of a command cannot hold."""
    return frozenset({*(f"no-{each}" for each in norm.parameters), *IN_NO_FILE})
