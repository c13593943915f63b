"""Operators that only the library computes: a record for each of which kgen knows something."""

from __future__ import annotations

from dataclasses import dataclass

from kgen.compiler.graph import contractions
from kgen.compiler.graph.complex_numbers import TO_COMPLEX, TO_PAIRS
from kgen.compiler.graph.contractions import (
    CONVOLVED,
    MATMUL,
    PRODUCT,
    PRODUCT_OF_SECOND,
    RECURRENT,
    TRANSPOSED,
    Contraction,
)
from kgen.compiler.graph.convolutions import TARGETS

#: How the names of convolutions end whose images have their channels side by side. The call may move its first operand
#: so.
CHANNELS_LAST = "_channels_last"
#: Operators that cuDNN computes behind a convolution in the same call, in the names of such convolutions.
RELU, ADD_RELU = "_relu", "_add_relu"


@dataclass(frozen=True)
class LibraryOperator:
    """An operator by its ATen name, or a convolution with channels last.

    The result of a ``view`` is another view of its operand's memory, or one of several results. ``sums`` counts the
    operations of a contraction. ``unnamed`` is bookkeeping or a view: it is run, and left out of a plan's name. A
    ``part`` may stand beside kernels in a decomposition. A ``layer`` runs several kernels, with the values of its parts
    between them.
    """

    name: str
    view: bool = False
    sums: Contraction | None = None
    unnamed: bool = False
    part: bool = False
    layer: bool = False


_VIEWS = (
    "view.default _unsafe_view.default reshape.default flatten.using_ints unflatten.int permute.default "
    "transpose.int t.default mT.default numpy_T.default movedim.int swapaxes.default swapdims.default "
    "expand.default expand_as.default view_as.default squeeze.default squeeze.dim squeeze.dims "
    "unsqueeze.default select.int slice.Tensor narrow.default split.Tensor split_with_sizes.default "
    "chunk.default broadcast_tensors.default broadcast_to.default unbind.int unfold.default diagonal.default "
    "alias.default detach.default real.default imag.default"
).split()

#: By their names. A view is reshaped by another operator where a copy in front of it was dropped.
LIBRARY = {
    of.name: of
    for of in (
        LibraryOperator("aten.add_.Tensor", unnamed=True),
        LibraryOperator("_operator.getitem", view=True, unnamed=True),
        LibraryOperator("aten.as_strided.default", view=True, unnamed=True),
        LibraryOperator(TO_PAIRS, view=True, unnamed=True),
        LibraryOperator(TO_COMPLEX, view=True, unnamed=True),
        *(LibraryOperator(f"aten.{name}", view=True) for name in _VIEWS),
        *(
            LibraryOperator(f"aten.{name}.default", sums=PRODUCT)
            for name in ("linear", "mm", "bmm", "matmul", "mv", "dot", "inner")
        ),
        *(LibraryOperator(f"aten.{name}.default", sums=PRODUCT_OF_SECOND) for name in ("addmm", "addmv", "baddbmm")),
        LibraryOperator("aten.addbmm.default", sums=Contraction(MATMUL, contractions.sum_of_products)),
        LibraryOperator("aten.einsum.default", sums=Contraction(MATMUL, contractions.einsum)),
        LibraryOperator(
            "aten.scaled_dot_product_attention.default", sums=Contraction(MATMUL, contractions.attention), part=True
        ),
        *(
            LibraryOperator(f"aten.{name}.default", sums=Contraction(MATMUL, contractions.fused_attention), layer=True)
            for name in ("_native_multi_head_attention", "_transformer_encoder_layer_fwd")
        ),
        *(
            LibraryOperator(target, sums=TRANSPOSED if "conv_transpose" in op else CONVOLVED)
            for op, targets in TARGETS.items()
            for target in targets
        ),
        *(LibraryOperator(f"conv{rank}d{CHANNELS_LAST}", sums=CONVOLVED) for rank in (2, 3)),
        *(LibraryOperator(f"conv2d{fused}{CHANNELS_LAST}", sums=CONVOLVED) for fused in (RELU, ADD_RELU)),
        *(LibraryOperator(f"conv_transpose{rank}d{CHANNELS_LAST}", sums=TRANSPOSED) for rank in (2, 3)),
        *(
            LibraryOperator(f"aten.{name}", sums=RECURRENT)
            for name in (
                "lstm.input",
                "gru.input",
                "rnn_tanh.input",
                "rnn_relu.input",
                "lstm_cell.default",
                "gru_cell.default",
                "rnn_tanh_cell.default",
                "rnn_relu_cell.default",
            )
        ),
    )
}

#: Those that may stand beside kernels in a decomposition.
LIBRARY_PARTS = frozenset(name for name, of in LIBRARY.items() if of.part)


@dataclass(frozen=True)
class Left:
    """Operators of one family that no kernel computes, by their names in ATen, and why."""

    family: str
    operators: tuple[str, ...]
    reason: str


def _left(family: str, operators: str, reason: str) -> Left:
    return Left(family, tuple(operators.split()), reason)


#: Operators that stay calls of the library. The page on the compiler shows this table.
LEFT = (
    _left(
        "some recurrent layers",
        "lstm gru rnn_tanh rnn_relu",
        "with projections, of packed sequences, of more weights than registers hold; on a CPU, of half types",
    ),
    _left("Fourier transforms", "fft_fft fft_ifft fft_rfft fft_irfft fft_fft2 stft istft", "cuFFT's and MKL's kernels"),
    _left(
        "sorting",
        "sort argsort topk kthvalue median mode unique_consecutive",
        "their order is no loop over elements; `topk` of up to 64 is as many reductions",
    ),
    _left("searching", "searchsorted histc bincount", "loops whose lengths depend on values"),
    _left("many buckets", "bucketize", "up to 64 boundaries are compared, more are searched"),
    _left(
        "sizes that depend on values",
        "nonzero masked_select repeat_interleave masked_scatter",
        "no kernel knows the size of its result",
    ),
    _left("random numbers", "rand_like randn_like bernoulli multinomial dropout", "the library's generator"),
    _left(
        "linear algebra",
        "linalg_inv linalg_qr linalg_svd linalg_eigh linalg_cholesky_ex linalg_solve_ex linalg_det",
        "LAPACK's and cuSOLVER's kernels",
    ),
    _left("running extremes", "cummax cummin logcumsumexp", "scans here are sums, products and linear recurrences"),
    _left(
        "bags of several sizes",
        "embedding_bag",
        "bags of one size are rows and a reduction; others are loops whose lengths depend on values",
    ),
    _left("windows that overlap in the result", "col2im max_unpool2d", "elements are added up in several windows"),
    _left("windows at random", "fractional_max_pool2d", "the library's generator places the windows"),
    _left(
        "smooth resizing",
        "_upsample_bilinear2d_aa _upsample_bicubic2d_aa",
        "more than seven times smaller; less is a sum of few pixels",
    ),
    _left(
        "special functions",
        "erfinv digamma polygamma special_i0 igamma nextafter frexp",
        "no device has a primitive of them",
    ),
    _left("losses along sequences", "_ctc_loss", "a recursion along each sequence"),
)


def left_to_the_library() -> list[str]:
    """The table of what stays a call of the library, as lines of Markdown."""
    rows = [f"| {of.family} | {', '.join(f'`{name}`' for name in of.operators)} | {of.reason} |" for of in LEFT]
    return ["| family | operators | reason |", "| --- | --- | --- |", *rows]
