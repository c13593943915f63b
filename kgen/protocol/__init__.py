"""The evaluator's questions and answers: plain dataclasses, no torch.

    Evaluation
    ├── status, reason, phase    what became of the candidate
    ├── errors                   error figures of each test case, against float64, beside eager's own
    ├── build                    the compiler's report
    └── timing                   raw samples, only where the status allows them

Medians, intervals and ratios are derived from raw samples by :mod:`kgen.protocol.statistics`.
"""

import hashlib
import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Mapping, Sequence, TypeAlias

__version__ = "0.1.0"  #: of kgen; it stands beside whatever is measured or rendered

RMS_FACTOR, MAX_FACTOR = 2.0, 4.0  #: times PyTorch's own error; allowed over a whole tensor
KERNELBENCH_TOLERANCE = 1e-4  #: absolute and relative
#: Relative root mean square error of a product of normal numbers; a smaller one was not multiplied in TF32. Measured on
#: 2,082 calls of cuDNN, float32 errs by 7e-7 at most and TF32 by 2.9e-4 at least (KernelBench's networks, H200).
TF32_LEAST = 2.0**-14
BASELINES = ("eager", "compile", "compile-max-autotune")  #: the slowest to prepare last
GRAPH_BASELINE = "compile-reduce-overhead"  #: is beside the others where a candidate replays a CUDA graph
KNOWN_BASELINES = (*BASELINES, GRAPH_BASELINE)
LAUNCH_MS = "launch_ms"  #: a condition of a timing: how long a call takes the host while the device is idle
CALL_MB = "call_mb"  #: another: megabytes that a call allocates at most, its results among them, without weights
#: By mode, for each tensor that PyTorch returns: sizes and strides, and those of a batch of one row where other batches
#: are taken.
Layouts: TypeAlias = Mapping[str, Sequence[Sequence[Sequence[int]]]]
COMPILER = "torch._inductor.compile_fx"  #: the module of torch's compiler; takes seconds to load


class Status(StrEnum):
    """The result of judging a candidate: a closed set. Only ``ok`` carries a timing."""

    OK = "ok"  #: right in every test case, and timed
    DUPLICATE = "duplicate"  #: its binary is the same as another candidate's
    BUILD_ERROR = "build_error"  #: the compiler refused it
    BUILD_TIMEOUT = "build_timeout"  #: the compiler did not end in time
    LOAD_ERROR = "load_error"  #: the file or its constructor raised
    RUNTIME_ERROR = "runtime_error"  #: forward raised
    CRASHED = "crashed"  #: the process died of a signal, or exited early
    TIMEOUT = "timeout"  #: a phase did not end in time
    OUT_OF_MEMORY = "out_of_memory"  #: host or device memory ran out
    WRONG_TYPE = "wrong_type"  #: another container, dtype or device than the reference's output
    WRONG_SHAPE = "wrong_shape"  #: another shape than the reference's output
    WRONG_VALUES = "wrong_values"  #: outside the accuracy class
    WRONG_STATE = "wrong_state"  #: buffers after the call differ from the reference's
    MUTATED_INPUT = "mutated_input"  #: it wrote into its inputs or parameters
    ALIASED_OUTPUT = "aliased_output"  #: its output shares memory with an input, an earlier output or itself
    NONDETERMINISTIC = "nondeterministic"  #: two runs differ by more than the tolerance
    SUSPICIOUS = "suspicious"  #: it interfered, or its timing has an anomaly; the reason says which
    #: The evaluator or a killed compiler failed, not the candidate. No other status is tried again.
    INFRA_ERROR = "infra_error"


class Accuracy(StrEnum):
    """Classes of accuracy: how right is defined."""

    FP32 = "fp32"  #: as accurate as PyTorch in IEEE float32, measured against float64
    PYTORCH = "pytorch"  #: as accurate as PyTorch is with its own flags, by measurement
    TF32 = "tf32"  #: as accurate as TF32 in every matmul and convolution
    KERNELBENCH = "kernelbench"  #: 1e-4 absolute and relative, for comparison with others

    @property
    def stored_as(self) -> "tuple[Accuracy, ...]":
        """The classes that results in this class may be stored in, the preferred one first. Where no operator can use
        TF32, as on the CPU, ``pytorch`` is ``fp32``."""
        return (self, Accuracy.FP32) if self is Accuracy.PYTORCH else (self,)


class Phase(StrEnum):
    """A phase of an evaluation."""

    BUILD = "build"
    LOAD = "load"
    VALIDATE = "validate"
    PREPARE = "prepare"  #: for timing: contents of its own, and calls that warm up
    TIME = "time"


TRIES = 3  #: of a candidate's build, and of its evaluation, where a signal from outside ends it


class Weights(StrEnum):
    """The values that a candidate's tensors have in test cases."""

    DRAWN = "drawn"  #: drawn anew, in both models
    #: State dicts are drawn anew. Other state that forward writes stays as constructed, and outputs alone judge it.
    SAVED = "saved"
    CONSTRUCTED = "constructed"  #: as both constructors make them from one seed, since names or shapes differ


class Depth(StrEnum):
    """How thoroughly a candidate was timed."""

    SCREEN = "screen"  #: alone and briefly
    FINAL = "final"  #: interleaved with the other finalists and the baselines


@dataclass(frozen=True)
class CaseErrors:
    """Error figures of one output tensor in one test case, all against the float64 reference. ``rms`` and ``maximum``
    are the candidate's errors, ``eager_rms`` and ``eager_maximum`` PyTorch's own: over ``runs`` inputs together, where
    a tensor has few independent errors. ``ratio`` is ``rms`` over ``eager_rms`` (1.0: as accurate as PyTorch; ``None``
    where PyTorch is exact). ``used`` is the largest share of a tolerance that was used, over the whole output, its rows
    and its columns (above 1.0 fails). ``note`` says why the case was skipped, or what is wrong where no figure says
    it."""

    case: str
    output: str
    rms: float | None
    maximum: float | None
    eager_rms: float | None
    eager_maximum: float | None
    ratio: float | None
    used: float | None
    ok: bool
    note: str = ""
    runs: int = 1


@dataclass(frozen=True)
class LibraryProduct:
    """A convolution or a recurrent layer in PyTorch's own forward, and how exactly cuDNN multiplies it.

    ``operator`` is its ATen name, ``input`` and ``weight`` are shapes, those of the problem's own batch. ``stride``,
    ``padding`` and ``dilation`` have a number for each dimension that the kernel moves along; a recurrent layer has
    none. ``errors`` holds the relative root mean square error on normal random operands for each tested number of rows.
    """

    operator: str
    input: tuple[int, ...]
    weight: tuple[int, ...]
    stride: tuple[int, ...] = ()
    padding: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    groups: int = 1
    transposed: bool = False
    errors: tuple[tuple[int, float], ...] = ()

    @property
    def tf32(self) -> bool:
        """Whether cuDNN used TF32 at every tested batch size."""
        return bool(self.errors) and all(error >= TF32_LEAST for _, error in self.errors)

    @property
    def tf32_at_most_rows(self) -> bool:
        """Whether cuDNN used TF32 at the largest tested batch size, the problem's own."""
        return bool(self.errors) and max(self.errors)[1] >= TF32_LEAST

    @property
    def reason(self) -> str:
        """The batch sizes that decide, in one line."""
        exact = [str(rows) for rows, error in self.errors if error < TF32_LEAST]
        if self.tf32 or not exact:
            return "cuDNN used TF32" if self.tf32 else "it was not measured"
        if len(exact) == len(self.errors):
            return "cuDNN used float32"
        return f"cuDNN used float32 at a batch of {', '.join(exact)}"


def read_product(found: Mapping[str, Any]) -> LibraryProduct:
    """The inverse of :func:`dataclasses.asdict`, from JSON values."""
    lists = {name: tuple(found[name]) for name in ("input", "weight", "stride", "padding", "dilation")}
    return LibraryProduct(
        **{**found, **lists, "errors": tuple((int(rows), float(error)) for rows, error in found["errors"])}
    )


@dataclass(frozen=True)
class KernelResources:
    """The compiler's figures of one kernel."""

    name: str
    registers: int
    shared_bytes: int
    spill_bytes: int


@dataclass(frozen=True)
class BuildReport:
    """The result of building one candidate's source. ``directory`` is the value of ``TORCH_EXTENSIONS_DIR`` under which
    the file's own ``load_inline`` finds its library. ``binary`` is the SHA-256 of the machine code, equal for
    candidates that compile to the same. ``from_outside``: signals that kgen did not send ended the compiler, each time
    anew."""

    ok: bool
    timed_out: bool
    seconds: float
    cached: bool
    directory: str
    binary: str | None
    reason: str
    log: str
    kernels: tuple[KernelResources, ...] = ()
    from_outside: bool = False


@dataclass(frozen=True)
class Timing:
    """Raw samples of one subject, a candidate (by id) or a baseline (by name), in one timing session. ``blocks`` holds
    milliseconds for each call, sample block by sample block in the order taken. Timings of one ``session`` were
    interleaved on the same device under the same flags; only those may be compared closely."""

    subject: str
    depth: Depth
    session: str
    blocks: tuple[tuple[float, ...], ...]
    prepare_ms: float | None = None  #: extra time of the first call after new weights
    conditions: tuple[tuple[str, str | float], ...] = ()  #: cache, clocks, temperature, throttling; by name


@dataclass(frozen=True)
class Evaluation:
    """The result of one candidate in one environment for one class of accuracy."""

    candidate: str
    status: Status
    reason: str
    accuracy: Accuracy
    phase: Phase | None = None
    errors: tuple[CaseErrors, ...] = ()
    build: BuildReport | None = None
    timing: Timing | None = None
    labels: tuple[str, ...] = ()
    seconds: tuple[tuple[str, float], ...] = ()  #: wall seconds by phase
    log: str = ""  #: path of the log file
    own_share: float | None = None  #: of the device's time, in kernels of its own, where it was profiled; not stored
    #: The share of the problem's operators that it does not call, where they were counted. It is not stored.
    replaced: float | None = None
    #: Milliseconds of the device's functions in one call, by their names, of a file with many kernels. Not stored.
    kernel_ms: tuple[tuple[str, float], ...] = ()

    @property
    def error_ratio(self) -> float | None:
        """Root mean square error over PyTorch's own, on the problem's own inputs: 1.0 is as accurate as PyTorch."""
        given = (e for e in self.errors if e.case == self.errors[0].case)
        return max((e.rms / e.eager_rms for e in given if e.rms is not None and e.eager_rms), default=None)


@dataclass(frozen=True)
class Environment:
    """The place of evaluations. Timings from different environments are never compared. ``device`` is the model name of
    the GPU or CPU; ``arch`` is ``sm_90`` or the CPU's instruction sets in short."""

    device_type: str
    device: str
    arch: str
    driver: str
    toolkit: str
    compiler: str
    torch: str
    python: str
    threads: int
    host: str

    @property
    def id(self) -> str:
        text = "\0".join(str(getattr(self, f)) for f in self.__dataclass_fields__ if f != "host")
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Limits:
    """Limits of a candidate: seconds of each phase, bytes, processes. At a limit all its processes are killed."""

    build_seconds: float = 120.0
    load_seconds: float = 60.0
    validate_seconds: float = 60.0
    time_seconds: float = 60.0
    compile_seconds: float = 180.0  #: for each baseline's torch.compile; one that takes longer is left out
    compile_until: float = math.inf  #: on the monotonic clock; a baseline that is not compiled by then is left out
    judge_until: float = math.inf  #: on the monotonic clock; candidates are not judged after it
    first_until: float = math.inf  #: the same before one with a kernel of its own is right
    reference_seconds: float = 60.0  #: of all float64 runs; where they are slow, test cases have fewer rows
    build_bytes: int = 8 << 30  #: memory of each compiler
    host_bytes: int = 16 << 30
    scratch_bytes: int = 1 << 30  #: of each folder that it may write to
    processes: int = 512  #: processes and threads, beside four threads for each CPU
    device_share: float = 0.5  #: share of a GPU's memory that all candidates judged at once may have together


@dataclass(frozen=True)
class Health:
    """Whether a problem's tolerance tells right from wrong: the trivial answers that pass (none, if healthy)."""

    passed_by: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.passed_by
