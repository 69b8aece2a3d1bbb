"""Hypotheses about the mean, the mean square, eps and the root of a row."""

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np

from truenorm.verify.causes import Cause
from truenorm.verify.formulas.rounding import rounded, to_bits
from truenorm.verify.inputs.families import HALF_MAX
from truenorm.verify.norms.changes import (
    NARROW,
    R,
    Table,
    changed,
    constant,
    rounded_steps,
    scaled,
    whole_blocks,
    zero,
)
from truenorm.verify.norms.norm import Norm
from truenorm.verify.norms.steps import Changes, Steps, mean
from truenorm.verify.types import Array, Float64s

COLUMN_BLOCKS = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
TILES = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
CONSTANT_SIZES = (64, 128, 256, 512, 768, 1024, 2048, 4096)
OTHER_EPS = {
    **{f"1e-{digits}": float(f"1e-{digits}") for digits in (3, 4, 5, 6, 7, 8, 12)},
    "2^-23": 2.0**-23,
}
INPUTS = {
    "dy is": ("dy",),
    "x and dy are": ("rows", "dy"),
    "all inputs are": ("rows", "gain", "beta", "dy"),
}


def of_statistics(norm: Norm) -> Table:
    """Return hypotheses about the mean, the mean square, eps and the root of a row."""
    table = {
        **_of_eps(),
        **_of_size(norm),
        **_of_rounding(norm),
        **_of_blocks(norm),
        **_of_axes(norm),
        **_of_root(norm),
    }
    if norm.centred:
        no_mean, no_mean_g = zero("mean"), zero("mean_g")
        cause = Cause("variance-about-0", "the variance is taken about 0, not about the mean")
        table[cause] = {"w": lambda at: mean(at["rows"] ** 2)}
        cause = Cause(
            "mean-for-variance-alone", "the mean is subtracted for the variance, but not from x"
        )
        table[cause] = {"xhat": lambda at: at["rows"] * at["r"]}
        cause = Cause("mean-of-abs-x", "the mean is that of |x|")
        table[cause] = {"mean": lambda at: mean(np.abs(at["rows"]))}
        cause = Cause("no-means-as-in-rms", "no mean is subtracted, as in RMS normalization")
        table[cause] = {
            **no_mean,
            **no_mean_g,
        }
        cause = Cause("no-mean", "no mean is subtracted in forward, but mean(g) is in backward")
        table[cause] = no_mean
        cause = Cause(
            "no-last-element-in-mean", "the last element of a row is left out of its mean"
        )
        table[cause] = {"mean": lambda at: at["rows"][:, :-1].sum(axis=1, keepdims=True) / at.size}
    else:
        centre: Changes = {"mean": lambda at: mean(at["rows"])}
        cause = Cause(
            "means-as-in-layer-norm", "the mean is subtracted, as in layer normalization"
        )
        table[cause] = {
            **centre,
            "mean_g": lambda at: mean(at["g"]),
        }
        cause = Cause(
            "mean-subtracted", "the mean is subtracted in forward, but mean(g) is not in backward"
        )
        table[cause] = centre
        cause = Cause(
            "variance-for-mean-square",
            "the variance is used for the mean square, and x is not centred",
        )
        table[cause] = {"w": lambda at: mean((at["rows"] - mean(at["rows"])) ** 2)}
    return table


def _of_eps() -> Table:
    return {
        Cause("eps-outside-root", "eps is added outside the root"): {
            "r": lambda at: 1 / (np.sqrt(at["w"]) + at["eps"])
        },
        Cause("no-term(eps)", "eps is left out"): scaled(0, "eps"),
        Cause("eps-over-size", "eps is divided by D"): changed(
            lambda at, eps: eps / at.size, "eps"
        ),
        Cause("eps-times-size", "eps is multiplied by D"): changed(
            lambda at, eps: eps * at.size, "eps"
        ),
        Cause("eps-squared", "eps is squared"): changed(lambda _, eps: eps**2, "eps"),
        Cause("eps-doubled", "eps is doubled"): scaled(2, "eps"),
        Cause("root-of-eps-outside-root", "the root of eps is added outside the root"): {
            "r": lambda at: 1 / (np.sqrt(at["w"]) + np.sqrt(at["eps"]))
        },
        Cause("eps-limits-square", "eps is a lower limit of the mean square, not added to it"): {
            "r": lambda at: 1 / np.sqrt(np.maximum(at["w"], at["eps"]))
        },
        Cause("eps-limits-root", "eps is a lower limit of the root, not added under it"): {
            "r": lambda at: 1 / np.maximum(np.sqrt(at["w"]), at["eps"])
        },
        Cause("eps-added-to-r", "eps is added to the inverse root"): {
            "r": lambda at: 1 / np.sqrt(at["w"]) + at["eps"]
        },
        Cause("eps-added-to-row", "eps is added to the row"): {
            "xhat": lambda at: (at["c"] + at["eps"]) * at["r"]
        },
        Cause("eps-added-to-y", "eps is added to y"): changed(lambda at, y: y + at["eps"], "y"),
        **{
            Cause(f"eps-is({text})", f"eps is {text}"): {"eps": constant(eps)}
            for text, eps in OTHER_EPS.items()
        },
        **{
            Cause(f"eps-rounded({kind})", f"eps is rounded to {kind}"): rounded_steps(kind, "eps")
            for kind in NARROW
        },
    }


def _of_size(norm: Norm) -> Table:
    """Return hypotheses about the divisor D."""
    square = "the variance" if norm.centred else "the mean square"
    table: Table = {
        Cause("square-over-size-less-1", f"{square} is divided by D - 1"): changed(
            lambda at, w: w * (at.size / max(at.size - 1, 1)), "w"
        ),
        Cause("square-undivided", f"{square} is a sum, not divided by D"): changed(
            lambda at, w: w * at.size, "w"
        ),
        Cause("no-root", f"no root is taken, or {R} is squared"): {
            "r": lambda at: 1 / (at["w"] + at["eps"])
        },
        **{
            Cause(f"square-times({times})", f"{square} is {times} times as large"): scaled(
                times, "w"
            )
            for times in (2, 4, 8)
        },
    }
    for tile in (*TILES, 0):
        width = f"the next multiple of {tile}" if tile else "the next power of two"
        to = tile or "power of two"
        cause = Cause(
            f"square-over-tile({to})", f"the sum of squares is divided by {width}, not by D"
        )
        table[cause] = over_tile(tile, "w")
        if norm.centred:
            cause = Cause(f"means-over-tile({to})", f"both means are divided by {width}")
            table[cause] = over_tile(tile, "mean", "w")
            cause = Cause(f"mean-over-tile({to})", f"the mean is divided by {width}, not by D")
            table[cause] = over_tile(tile, "mean")
            cause = Cause(
                f"padding-in-variance({to})", f"zero padding to {width} is counted in the variance"
            )
            table[cause] = _with_padding(tile)
    for size in CONSTANT_SIZES:
        cause = Cause(f"square-over({size})", f"the sum of squares is divided by {size}, not by D")
        table[cause] = _over(size, "w")
        if norm.centred:
            cause = Cause(f"means-over({size})", f"both means are divided by {size}, not by D")
            table[cause] = _over(size, "mean", "w")
    means = ("mean", "mean_g") if norm.centred else ()
    for kind in NARROW:
        over_rounded = partial(_over_rounded_size, kind)
        cause = Cause(f"size-rounded({kind})", f"D is rounded to {kind}")
        table[cause] = changed(over_rounded, "w", "projection", *means)
    return table


def _over_rounded_size(kind: str, at: Steps, right: Float64s) -> Float64s:
    return right * (at.size / rounded(np.full(1, float(at.size)), kind))


def _over(size: int, *steps: str) -> Changes:
    return changed(lambda at, right: right * (at.size / size), *steps)


def _padded_size(size: int, tile: int) -> int:
    """Return the size of a row that is padded to a tile, or to a power of two."""
    return -(-size // tile) * tile if tile else 1 << (size - 1).bit_length()


def over_tile(tile: int, *steps: str) -> Changes:
    """Divide sums by the size of a row that is padded to a tile, or to a power of two."""
    return changed(lambda at, right: right * (at.size / _padded_size(at.size, tile)), *steps)


def _with_padding(tile: int) -> Changes:
    def change(at: Steps, w: Float64s) -> Float64s:
        padding = _padded_size(at.size, tile) - at.size
        return w + padding * at["mean"] ** 2 / at.size

    return changed(change, "w")


def _of_blocks(norm: Norm) -> Table:
    """Return hypotheses about a last block of a row that is not full."""
    table: Table = {}
    for block in COLUMN_BLOCKS:
        rules: dict[Cause, RowMean] = {
            Cause(
                f"no-partial-block({block})", f"the last, partial block of {block} is left out of"
            ): partial(_without_tail, block),
            Cause(
                f"partial-block-not-counted({block})",
                f"the last, partial block of {block} is neither counted nor added in",
            ): partial(_of_whole_blocks, block),
            Cause(
                f"no-columns-from({block})", f"columns from {block} on are left out of"
            ): partial(_first_columns, block),
            Cause(
                f"equal-blocks({block})",
                f"blocks of {block} columns, also a partial one, have equal weights in",
            ): partial(_mean_of_block_means, block),
            Cause(
                f"equal-lanes({block})", f"{block} lanes, also shorter ones, have equal weights in"
            ): partial(_mean_of_lane_means, block),
        }
        for cause, rule in rules.items():
            _add_row_means(table, norm, cause, rule)
        if norm.centred:
            cause = Cause(
                f"no-variance-between-blocks({block})",
                f"the variance between blocks of {block} columns is left out",
            )
            table[cause] = {"w": partial(_within_blocks, block)}
    words = "the halves of a row, also of odd width, have equal weights in"
    _add_row_means(table, norm, Cause("equal-halves", words), _of_halves)
    words = "the second half of a row is left out of"
    _add_row_means(table, norm, Cause("no-second-half", words), _first_half)
    return table


RowMean = Callable[[Float64s], Float64s]
"""Returns a wrong mean of each row, as a column."""


def _add_row_means(table: Table, norm: Norm, cause: Cause, rule: RowMean) -> None:
    """Add hypotheses about a rule for the mean, the mean square, or both."""

    def in_sum(name: str, sums: str) -> Cause:
        return Cause(f"{cause.id}-in-{name}", f"{cause.words} {sums}")

    squares: Changes = {"w": lambda at: rule(at["c"] * at["c"])}
    table[in_sum("square", "the sum of squares")] = squares
    if norm.centred:
        centre: Changes = {"mean": lambda at: rule(at["rows"])}
        table[in_sum("both-sums", "both sums of a row")] = {**centre, **squares}
        table[in_sum("mean", "the mean")] = centre


def _without_tail(block: int, terms: Float64s) -> Float64s:
    size = terms.shape[1]
    whole = terms[:, : whole_blocks(size, block)]
    return np.asarray(whole.sum(axis=1, keepdims=True) / size)


def _of_whole_blocks(block: int, terms: Float64s) -> Float64s:
    return mean(terms[:, : whole_blocks(terms.shape[1], block)])


def _first_columns(count: int, terms: Float64s) -> Float64s:
    return np.asarray(terms[:, :count].sum(axis=1, keepdims=True) / terms.shape[1])


def _first_half(terms: Float64s) -> Float64s:
    return _first_columns(max(terms.shape[1] // 2, 1), terms)


def _equal_weights(parts: Iterable[Float64s]) -> Float64s:
    return np.asarray(np.mean([mean(part) for part in parts], axis=0))


def _mean_of_block_means(block: int, terms: Float64s) -> Float64s:
    starts = range(0, terms.shape[1], block)
    return _equal_weights(terms[:, start : start + block] for start in starts)


def _mean_of_lane_means(lanes: int, terms: Float64s) -> Float64s:
    first = range(min(lanes, terms.shape[1]))
    return _equal_weights(terms[:, lane::lanes] for lane in first)


def _of_halves(terms: Float64s) -> Float64s:
    return _mean_of_block_means(-(-terms.shape[1] // 2), terms)


def _within_blocks(block: int, at: Steps) -> Float64s:
    c = at["c"]
    starts = range(0, at.size, block)
    parts = (c[:, start : start + block] for start in starts)
    squares = sum(((part - mean(part)) ** 2).sum(axis=1, keepdims=True) for part in parts)
    return np.asarray(squares / at.size)


def _of_axes(norm: Norm) -> Table:
    """Return hypotheses about statistics of elements other than the elements of a row."""
    square = "the variance" if norm.centred else "the mean square"
    table: Table = {}
    for number, summed in {"": np.float64, ", summed in float32": np.float32}.items():
        column: Changes = {"w": partial(_of_each_column, number_type=summed, squares=True)}
        cause = Cause(
            f"square-of-columns({summed.__name__})",
            f"{square} is that of each column, not of each row{number}",
        )
        table[cause] = column
        if norm.centred:
            cause = Cause(
                f"mean-and-square-of-columns({summed.__name__})",
                f"mean and variance are those of each column, not of each row{number}",
            )
            table[cause] = {
                "mean": partial(_of_each_column, number_type=summed, squares=False),
                **column,
            }
    cause = Cause("square-of-all-rows", f"{square} is that of all rows together")
    table[cause] = {"w": _of_all_squares}
    if norm.centred:
        cause = Cause(
            "mean-and-square-of-all-rows", "mean and variance are those of all rows together"
        )
        table[cause] = {
            "mean": lambda at: at.column(at["rows"].mean()),
            "w": _of_all_squares,
        }
    moves: dict[tuple[str, str], Callable[[Steps, Float64s], Float64s]] = {
        ("before", "row before"): lambda _, column: np.roll(column, 1, axis=0),
        ("next", "next row"): lambda _, column: np.roll(column, -1, axis=0),
        ("first", "first row"): lambda _, column: column[:1],
    }
    for (which, place), move in moves.items():
        root = changed(move, "r")
        table[Cause(f"of-{which}({R}, row)", f"{R} is that of the {place}")] = root
        if norm.centred:
            centre = changed(move, "mean")
            words = f"the mean that is subtracted is that of the {place}"
            cause = Cause(f"of-{which}(the mean that is subtracted, row)", words)
            table[cause] = {
                **centre,
                "w": _variance_about_right_mean,
            }
            cause = Cause(
                f"of-{which}(the mean, {R}, row)", f"the mean and {R} are those of the {place}"
            )
            table[cause] = {
                **centre,
                "w": _variance_about_right_mean,
                **root,
            }
    return table


def _of_each_column(at: Steps, *, number_type: type, squares: bool) -> Float64s:
    terms: Array = (at["c"] ** 2 if squares else at["rows"]).astype(number_type)
    return np.asarray(terms.mean(axis=0, keepdims=True).astype(np.float64))


def _of_all_squares(at: Steps) -> Float64s:
    return at.column(float((at["c"] ** 2).mean()))


def _of_root(norm: Norm) -> Table:
    """Return hypotheses about the number that a row is divided by."""
    row = "x - mean" if norm.centred else "x"
    table: Table = {
        Cause("over-mean-of-abs", f"the row is divided by mean(|{row}|) + eps"): {
            "r": lambda at: 1 / (mean(np.abs(at["c"])) + at["eps"])
        },
        Cause("over-largest", f"the row is divided by max(|{row}|) + eps"): {
            "r": lambda at: 1 / (np.abs(at["c"]).max(axis=1, keepdims=True) + at["eps"])
        },
    }
    for steps in range(4):
        counted = f"{steps} Newton step{'s' * (steps != 1)}"
        cause = Cause(
            f"fast-root({steps})", f"{R} is approximated by the bits of a float32, with {counted}"
        )
        table[cause] = {"r": partial(_fast_root, steps)}
    return table


def _fast_root(newton_steps: int, at: Steps) -> Float64s:
    """Return the inverse root by a shift of the bits of a float32 number."""
    w = (at["w"] + at["eps"]).astype(np.float32)
    shifted = np.int32(0x5F3759DF) - (w.view(np.int32) >> 1)
    r: Float64s = shifted.view(np.float32).astype(np.float64)
    for _ in range(newton_steps):
        r = r * (1.5 - 0.5 * w * r * r)
    return r


def _of_rounding(norm: Norm) -> Table:
    """Return hypotheses about statistics and inputs that are rounded to a narrow type."""
    table: Table = {}
    square = "the variance" if norm.centred else "the mean square"
    row = "x + residual" if norm.adds else "x"
    minuend = f"{row} - mean" if norm.centred else row
    cause = Cause(f"rounded({R}, 12 bits)", f"{R} is rounded to 12 bits")
    table[cause] = rounded_steps("12 bits", "r")
    for kind, bits in {"bfloat16": 8, "TF32": 11}.items():
        cause = Cause(f"row-truncated({kind})", f"{row} is truncated to {kind} first")
        table[cause] = {"rows": partial(_truncated_rows, bits)}
    for kind in (*NARROW, "TF32"):
        squares = {"w": partial(_squares_of_rounded, kind)}
        factors = {"xhat": partial(_product_of_rounded, kind)}
        cause = Cause(
            f"square-of-rounded({kind})", f"for its square, {minuend} is rounded to {kind}"
        )
        table[cause] = squares
        cause = Cause(
            f"product-of-rounded({kind})",
            f"for their product, {minuend} and {R} are rounded to {kind}",
        )
        table[cause] = factors
        if norm.centred:
            summed: Changes = {"mean": partial(_mean_of_rounded, kind)}
            cause = Cause(
                f"sums-of-rounded({kind})", f"for both sums of a row, {row} is rounded to {kind}"
            )
            table[cause] = {**summed, **squares}
            cause = Cause(f"mean-of-rounded({kind})", f"for the mean, {row} is rounded to {kind}")
            table[cause] = summed
    overflow = f"where squares overflow above {HALF_MAX:.0f}"
    table |= {
        Cause("squared-in(float16)", f"{minuend} is squared in float16, {overflow}"): {
            "w": partial(_half_squares, "float64")
        },
        Cause("squares-rounded(float16)", f"squares are rounded to float16, {overflow}"): {
            "w": lambda at: mean(rounded(at["c"] ** 2, "float16"))
        },
        Cause(
            "sum-of-squares-rounded(float16)",
            f"the sum of squares is rounded to float16, where it overflows above {HALF_MAX:.0f}",
        ): {"w": lambda at: rounded(at.size * at.right("w"), "float16") / at.size},
    }
    if norm.centred:
        cause = Cause(
            "float32-squared-in(float16)",
            f"{minuend}, a float32 number, is squared in float16, {overflow}",
        )
        table[cause] = {"w": partial(_half_squares, "float32")}
    words = f"squares are limited to {HALF_MAX:.0f}, the largest number of float16"
    cause = Cause("squares-limited", words)
    table[cause] = {"w": lambda at: mean(np.minimum(at["c"] ** 2, HALF_MAX))}
    for kind in (*NARROW, "TF32", "float32"):
        root = rounded_steps(kind, "r")
        table[Cause(f"rounded({R}, {kind})", f"{R} is rounded to {kind}")] = root
        cause = Cause(f"rounded({square}, {kind})", f"{square} is rounded to {kind}")
        table[cause] = rounded_steps(kind, "w")
        cause = Cause(f"row-rounded({kind})", f"{row} is rounded to {kind} first")
        table[cause] = rounded_steps(kind, "rows")
        for these, steps in INPUTS.items():
            words = f"{these} rounded to {kind} first"
            cause = Cause(f"inputs-rounded({', '.join(steps)}, {kind})", words)
            table[cause] = rounded_steps(kind, *steps)
        if norm.centred:
            centre = rounded_steps(kind, "mean")
            table[Cause(f"rounded(the mean, {kind})", f"the mean is rounded to {kind}")] = centre
            cause = Cause(
                f"mean-and-r-rounded({kind})", f"the mean is rounded to {kind}, and {R} after it"
            )
            table[cause] = {
                **centre,
                **root,
            }
            saved: Changes = {**centre, "w": _variance_about_right_mean}
            table[Cause(f"mean-saved({kind})", f"the mean is saved in {kind}")] = saved
            cause = Cause(f"mean-and-r-saved({kind})", f"the mean and {R} are saved in {kind}")
            table[cause] = {
                **saved,
                **root,
            }
    cause = Cause(
        "squares-in(float32)",
        "squares are computed and summed in float32, where they overflow or underflow",
    )
    table[cause] = {"w": _squares_in_float32}
    return table


def _truncated_rows(bits: int, at: Steps) -> Float64s:
    return to_bits(at.right("rows"), bits, np.trunc)


def _squares_of_rounded(kind: str, at: Steps) -> Float64s:
    return mean(rounded(at["c"], kind) ** 2)


def _half_squares(kind: str, at: Steps) -> Float64s:
    """Return mean squares in float16 of deviations that are computed in another type.

    A rounding error of a deviation may change its rounding to float16.
    """
    c = at["c"] if kind == "float64" else rounded(at["rows"] - rounded(at["mean"], kind), kind)
    return mean(rounded(rounded(c, "float16") ** 2, "float16"))


def _mean_of_rounded(kind: str, at: Steps) -> Float64s:
    return mean(rounded(at["rows"], kind))


def _product_of_rounded(kind: str, at: Steps) -> Float64s:
    return rounded(at["c"], kind) * rounded(at["r"], kind)


def _variance_about_right_mean(at: Steps) -> Float64s:
    c = at["rows"] - at.right("mean")
    return mean(c * c) - mean(c) ** 2


def _squares_in_float32(at: Steps) -> Float64s:
    c = at["c"].astype(np.float32)
    return np.asarray((c * c).mean(axis=1, keepdims=True).astype(np.float64))
