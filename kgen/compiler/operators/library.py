"""Operators that only the library computes: a record for each of which kgen knows something."""

from __future__ import annotations

from dataclasses import dataclass

from kgen.compiler.graph import contractions
from kgen.compiler.graph.complex_numbers import TO_COMPLEX, TO_PAIRS
from kgen.compiler.graph.contractions import CONVOLUTION, CONVOLVED, MATMUL, PRODUCT, PRODUCT_OF_SECOND, TRANSPOSED, Contraction
from kgen.compiler.graph.convolutions import TARGETS

#: How the names of convolutions end whose images have their channels side by side. The call may move its first operand so.
CHANNELS_LAST = "_channels_last"


@dataclass(frozen=True)
class LibraryOperator:
    """An operator by its ATen name, or a convolution with channels last.

    The result of a ``view`` is another view of its operand's memory, or one of several results. ``sums`` counts the operations
    of a contraction. ``unnamed`` is bookkeeping or a view: it is run, and left out of a plan's name. A ``part`` may stand
    beside kernels in a decomposition. A ``layer`` runs several kernels, with the values of its parts between them.
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
        *(LibraryOperator(f"aten.{name}.default", sums=PRODUCT) for name in ("linear", "mm", "bmm", "matmul", "mv", "dot", "inner")),
        *(LibraryOperator(f"aten.{name}.default", sums=PRODUCT_OF_SECOND) for name in ("addmm", "addmv", "baddbmm")),
        LibraryOperator("aten.addbmm.default", sums=Contraction(MATMUL, contractions.sum_of_products)),
        LibraryOperator("aten.einsum.default", sums=Contraction(MATMUL, contractions.einsum)),
        LibraryOperator("aten.scaled_dot_product_attention.default", sums=Contraction(MATMUL, contractions.attention), part=True),
        *(
            LibraryOperator(f"aten.{name}.default", sums=Contraction(MATMUL, contractions.fused_attention), layer=True)
            for name in ("_native_multi_head_attention", "_transformer_encoder_layer_fwd")
        ),
        *(LibraryOperator(target, sums=TRANSPOSED if "conv_transpose" in op else CONVOLVED) for op, targets in TARGETS.items() for target in targets),
        *(LibraryOperator(f"conv{rank}d{CHANNELS_LAST}", sums=CONVOLVED) for rank in (2, 3)),
        *(LibraryOperator(f"conv_transpose{rank}d{CHANNELS_LAST}", sums=TRANSPOSED) for rank in (2, 3)),
        *(
            LibraryOperator(f"aten.{name}", sums=Contraction(CONVOLUTION, contractions.recurrent))
            for name in (
                "lstm.input", "gru.input", "rnn_tanh.input", "rnn_relu.input",
                "lstm_cell.default", "gru_cell.default", "rnn_tanh_cell.default", "rnn_relu_cell.default",
            )
        ),
    )
}  # fmt: skip

#: Those that may stand beside kernels in a decomposition.
LIBRARY_PARTS = frozenset(name for name, of in LIBRARY.items() if of.part)
