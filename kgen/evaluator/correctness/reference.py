"""The reference model: constructed, its weights drawn anew, run as it is and in float64."""

import copy
import itertools
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Callable, Collection, Iterable, Iterator, Mapping, Sequence

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from kgen.devices.kinds import KINDS, kind_of
from kgen.devices.runtime import runtime
from kgen.errors import ProblemError
from kgen.evaluator.correctness import cudnn
from kgen.evaluator.correctness.distributions import HALF
from kgen.evaluator.correctness.operators import Eager
from kgen.evaluator.correctness.tolerance import epsilon_of
from kgen.evaluator.runtime.arena import map_tensors, same_bits, tensors
from kgen.evaluator.runtime.members import TABLES, unsaved
from kgen.problems.problem import LoadedProblem
from kgen.protocol import TF32_LEAST

State = Mapping[str, torch.Tensor]
Run = tuple[Any, dict[str, torch.Tensor]]  #: output and buffers
aten = torch.ops.aten
_ONE_IN = 8  #: one in so many elements of a constant parameter gets the other sign
_DOUBLED = {torch.complex64: torch.complex128} | dict.fromkeys((torch.float32, *HALF), torch.float64)
#: Operators that give whole numbers, which are not rounded: a later floor would give the number below.
_WHOLE = frozenset(
    getattr(aten, name + place).default for name in ("ceil", "floor", "round", "sign", "trunc") for place in ("", "_")
)
#: Operators that do not say which of equal elements comes first.
_UNORDERED = frozenset(
    {
        aten.sort.default,
        aten.topk.default,
        aten.kthvalue.default,
        aten.median.dim,
        aten.nanmedian.dim,
        aten.mode.default,
    }
)
#: Operators that subtract a mean: they give out, mean and inverse standard deviation.
_NORMS = frozenset(
    {
        aten.native_layer_norm.default,
        aten.native_group_norm.default,
        aten.native_batch_norm.default,
        aten.cudnn_batch_norm.default,
    }
)
#: Operators that multiply their last two arguments.
_PRODUCTS = cudnn.MATMULS | {aten.mul.Tensor}
_CONTAINERS = (torch.Tensor, list, tuple, dict)
TF32_EPSILON = 2.0**-11  #: relative; half a unit in the last of TF32's ten bits
_APART, _LEAST = 2.0**-22, 1e-290  #: relative, as a softmax errs in float32, and absolute; make equal numbers differ


#: The switches of PyTorch that say how library calls are computed, as (module, name).
_FLAGS = (
    (torch.backends.cuda.matmul, "allow_tf32"),
    (torch.backends.cudnn, "allow_tf32"),
    (torch.backends.cudnn, "benchmark"),
    (torch.backends.cudnn, "deterministic"),
)


def set_flags(accuracy: str, given: Sequence[bool] = ()) -> None:
    """Set the precision switches of a process: TF32 nowhere, everywhere in its class, or in cuDNN as PyTorch has it. In
    the class ``pytorch``, those ``given`` by the problem's file (:func:`flags`) count."""
    torch.backends.cuda.matmul.allow_tf32 = accuracy == "tf32"
    torch.backends.cudnn.allow_tf32 = accuracy in ("tf32", "pytorch")
    for (module, name), value in zip(_FLAGS, given if accuracy == "pytorch" else ()):
        if getattr(module, name) != value:
            setattr(module, name, value)


def flags() -> list[bool]:
    """The switches of this process, for :func:`set_flags`."""
    return [bool(getattr(module, name)) for module, name in _FLAGS]


def generator_states(devices: Sequence[torch.device | str]) -> list[torch.Tensor]:
    """The states of the random number generators of the CPU and of ``devices``."""
    return [torch.get_rng_state(), *(runtime(device).generator_state(device) for device in devices)]


def seed_for(device: str, number: int) -> None:
    """Seed the random numbers of a device, and of the CPU.

    ``torch.manual_seed`` formats the whole stack for each kind of device that has not started. On the CPU, that took a
    third of the time of a small reference.
    """
    if kind_of(device).accelerator:
        torch.manual_seed(number)
    else:
        torch.default_generator.manual_seed(number)


def made_on(device: str, seed: int, make: Callable[[], Any]) -> Any:
    """``make()`` with numbers from ``seed``, on ``device`` or, where that fails, on the CPU, which takes seconds."""
    if kind_of(device).accelerator:
        seed_for(device, seed)
        try:
            with torch.device(device):
                return make()
        except (RuntimeError, TypeError, ValueError, ProblemError):
            print(f"it cannot be made on {device}, and is moved there", flush=True)
    seed_for(device, seed)
    return make()


def construct(make: Callable[[], torch.nn.Module], device: str, seed: int) -> torch.nn.Module:
    """``make()``'s module on ``device``, with random numbers from ``seed``."""
    return made_on(device, seed, lambda: make().to(device))


def draw_weights(
    loaded: LoadedProblem, device: str, seed: int, *, signs: bool = True, others: Collection[str] = ()
) -> dict[str, torch.Tensor]:
    """A state dict drawn from ``seed`` in which constant tensors become random, with ``signs`` in both signs. Fresh
    modules have scales of one, biases and means of zero, variances of one: they hide wrong folds. The tensors of no
    state dict that are named in ``others`` are drawn, too."""
    model = construct(loaded.model, device, seed)
    parameters = dict(model.named_parameters())
    generator = torch.Generator().manual_seed(seed + 1)
    held = model.state_dict() | {name: x for name, x in unsaved(model).items() if name in others}
    return {name: _draw(x.detach(), name in parameters, signs, generator) for name, x in held.items()}


def _draw(value: torch.Tensor, parameter: bool, signs: bool, generator: torch.Generator) -> torch.Tensor:
    if not value.is_floating_point() or not value.numel() or bool((value != value.flatten()[0]).any()):
        return value
    constant = float(value.flatten()[0])
    if constant == 0:
        fresh = 0.25 * torch.randn(value.shape, generator=generator)
    elif parameter:
        fresh = constant * (1 + 0.25 * torch.randn(value.shape, generator=generator))
        if signs and value.numel() >= _ONE_IN:  # after training, a scale may have either
            fresh = torch.where(torch.rand(value.shape, generator=generator) < 1 / _ONE_IN, -fresh, fresh)
    else:  # a buffer such as a variance keeps its sign
        fresh = constant * (0.5 + torch.rand(value.shape, generator=generator))
    return fresh.to(value)


def _in_double(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Arguments in float64: lower dtypes, and lower tensors beside float64 ones, as in a list of the module."""
    if kwargs.get("dtype") in _DOUBLED:
        kwargs = {**kwargs, "dtype": _DOUBLED[kwargs["dtype"]]}
    kinds = {x.dtype for x in tensors([list(args), kwargs])}
    if func._schema.is_mutable or not kinds & _DOUBLED.keys() or not kinds & set(_DOUBLED.values()):
        return args, kwargs
    return map_tensors((list(args), kwargs), _doubled)


def _doubled(x: torch.Tensor) -> torch.Tensor:
    """``x`` in float64 or complex128; itself where it has another dtype, as integers have."""
    return x.to(_DOUBLED.get(x.dtype, x.dtype))


def _draws(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether an operator draws random numbers for these arguments; attention without dropout does not."""
    if func._schema.is_mutable or kwargs.get("generator") is not None:
        return True
    devices = [x.device for x in tensors([list(args)]) if x.device.type in KINDS and kind_of(x.device).accelerator][:1]
    with torch.random.fork_rng([device.index for device in devices]):
        before = generator_states(devices)
        func(*args, **kwargs)
        return not all(map(torch.equal, before, generator_states(devices)))


def _skip_zeros(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: torch.Tensor) -> torch.Tensor:
    """The ``result`` of a product if products with zero were left out."""
    others, factors = args[:-2], args[-2:]
    if not all(isinstance(x, torch.Tensor) and x.dtype == torch.float64 for x in factors):
        return result
    finite, zero = [torch.isfinite(x) for x in factors], [x == 0 for x in factors]
    if not any(bool(z.any()) and not bool(f.all()) for z, f in zip(zero, finite[::-1])):
        return result
    multiply = torch.mul if func is aten.mul.Tensor else torch.matmul
    counted = sum(multiply(x.double(), y.double()) for x, y in ((~finite[0], ~zero[1]), (~zero[0], ~finite[1])))
    filled = (x.masked_fill(~f, 0.0) for x, f in zip(factors, finite))
    return result.where(counted > 0, func(*others, *filled, **kwargs))


@dataclass(eq=False)
class _Rounding(Eager):
    """Runs random operators in ``dtype`` and all others in float64. With ``noise``, each operator's result is rounded
    to ``dtype``, and the order of equal elements is random. ``tf32`` tells for each call of cuDNN, in order, whether
    its operands are rounded to TF32. ``None`` rounds the operands of every product."""

    noise: torch.Generator | None
    dtype: torch.dtype
    tf32: Sequence[bool] | None = ()
    turn: int = 0  #: among noisy runs
    bare: bool = False
    sparse: bool = False
    masks: bool = False  #: whether a softmax of minus infinities alone may occur

    def __post_init__(self) -> None:
        super().__init__()
        self._calls = itertools.count()  # of cuDNN

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded in func.tags and _draws(func, args, kwargs):
            return self._random(func, args, kwargs)
        args, kwargs = _in_double(func, args, kwargs)
        if func is aten._safe_softmax.default:
            self.masks = True
            func = aten.softmax.int if self.bare else func
        if self.noise is not None and func in _UNORDERED and args[0].dtype == torch.float64:
            args = [self._in_any_order(args[0]), *args[1:]]
        if self.noise is not None and (operands := self._in_tf32(func, len(args))):
            rounded = map_tensors(list(args[operands]), lambda x: self._round(x.clone(), TF32_EPSILON))
            args = [*args[: operands.start], *rounded, *args[operands.stop :]]
        result = func(*args, **kwargs)
        if self.sparse and func in _PRODUCTS:
            result = _skip_zeros(func, args, kwargs, result)
        if self.noise is not None and func in _NORMS and result[0].dtype == torch.float64:
            self._round_means(func, args, *result[:3])
        view = any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns)
        if self.noise is not None and not view and func not in _WHOLE:
            map_tensors(result, self._round)
        return result

    def _in_tf32(self, func: Any, count: int) -> slice | None:
        """Which of ``count`` arguments are operands in TF32; ``None`` where none is."""
        if func in cudnn.OPERATORS:
            number = next(self._calls)
            return slice(0, 2) if self.tf32 is None or (number < len(self.tf32) and self.tf32[number]) else None
        return slice(count - 2, count) if self.tf32 is None and func in cudnn.MATMULS else None

    def _round_means(
        self, func: Any, args: Sequence[Any], out: torch.Tensor, mean: torch.Tensor, inverse: torch.Tensor
    ) -> None:
        """Change a norm's result as if its means were rounded before they are subtracted."""
        by_channel = func is not aten.native_layer_norm.default
        weight, channels = args[1 if by_channel else 2], [-1, *[1] * (out.ndim - 2)]
        if func is aten.native_group_norm.default:
            each = out.shape[1] // mean.shape[1]
            mean, inverse = (x.repeat_interleave(each, 1).view(len(out), *channels) for x in (mean, inverse))
        elif by_channel:
            if not mean.numel():  # with running statistics
                mean, inverse = args[3], (args[4] + args[7]).rsqrt()
            mean, inverse = mean.view(channels), inverse.view(channels)
        off = mean * inverse * self._uniform(mean) * epsilon_of(self.dtype)
        if weight is not None:
            off = off * (weight.view(channels) if by_channel else weight)
        out.sub_(off)

    def _random(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Draw in eager's dtype: generators give other numbers in float64."""
        lowered = map_tensors(list(args), lambda x: x.to(self.dtype) if x.dtype == torch.float64 else x)
        kwargs = kwargs | ({"dtype": self.dtype} if kwargs.get("dtype") == torch.float64 else {})
        result = func(*lowered, **kwargs)
        if func._schema.is_mutable:
            return args[0].copy_(lowered[0])
        return map_tensors(result, lambda x: x.double() if x.dtype == self.dtype else x)

    def _in_any_order(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` with equal numbers made different, non-finite ones too (NaN is the largest). Every second turn reverses
        the order of the turn before, so that two equal elements come in both orders. Numbers too small for eager's
        dtype are equal there: all are zero."""
        x = torch.where(x.abs() < torch.finfo(self.dtype).tiny, 0.0, x)
        drawn = self._uniform(x, torch.Generator(x.device).manual_seed(self.turn // 2)) * (-1) ** self.turn
        large = x.nan_to_num(nan=2.0, posinf=1.0, neginf=-1.0) * (1 + drawn / 4) / _LEAST
        return torch.where(torch.isfinite(x), x + x.abs() * drawn * _APART + drawn * _LEAST, large)

    def _round(self, x: torch.Tensor, epsilon: float | None = None) -> torch.Tensor:
        if x.dtype == torch.complex128:
            x = torch.view_as_real(x)
        if x.dtype == torch.float64 and x.numel():
            flat = x.view(-1) if x.is_contiguous() else x
            for part in flat.split(kind_of(x.device).rounded_at_once):
                part.mul_(
                    self._uniform(part, most=epsilon or epsilon_of(self.dtype)).add_(1.0)
                )  # an infinity stays one
        return x

    def _uniform(self, x: torch.Tensor, generator: torch.Generator | None = None, most: float = 1.0) -> torch.Tensor:
        """Random numbers up to ``most`` in size, in the shape of ``x``. On a CPU, 64 bits serve four elements."""
        generator = generator or self.noise
        if kind_of(x.device).accelerator:
            drawn = torch.rand(x.shape, dtype=torch.float32, device=x.device, generator=generator)
            return drawn.sub_(0.5).double().mul_(2.0 * most)
        bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None, generator=generator)
        return bits.view(torch.int16)[: x.numel()].view(x.shape).double().mul_(most * 2.0**-15)


@contextmanager
def _exactly() -> Iterator[None]:
    """New tensors in float64. Attention as products and a softmax, so that roundings between them show."""
    dtype, fast = torch.get_default_dtype(), torch.backends.mha.get_fastpath_enabled()
    torch.set_default_dtype(torch.float64)
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.set_default_dtype(dtype)
        torch.backends.mha.set_fastpath_enabled(fast)


class Reference:
    """The problem's model as it is and in float64 on one device, run with any weights. Candidates are constructed with
    the same ``seed``. ``dtype`` is the one in which eager rounds: float32, or the half type of all weights and
    inputs."""

    def __init__(self, loaded: LoadedProblem, device: str, seed: int) -> None:
        self.device = device
        with torch.no_grad():  # tensors computed from parameters (weight_norm) cannot be copied otherwise
            self.single = construct(loaded.model, device, seed)
        self.double = _to_double(self.single)
        self._begun = {model: _attributes(model) for model in (self.single, self.double)}
        self.unsaved: dict[str, torch.Tensor] = {}  # tensors of no state dict that forward writes, as constructed
        self._noise = torch.Generator(device).manual_seed(seed)
        self._turns = itertools.count()  # of noisy runs
        self._products = cudnn.Products(device)
        self.dtype = torch.float32
        self.masks = False  # whether an exact run had attention that may mask everything

    def ties(self) -> dict[str, str]:
        """Second names of parameters, with their first names."""
        first: dict[int, str] = {}
        named = self.single.named_parameters(remove_duplicate=False)
        return {name: first[id(p)] for name, p in named if first.setdefault(id(p), name) != name}

    def find_unsaved(self, inputs: Sequence[Any], state: State, modes: Sequence[str]) -> list[str]:
        """The names of tensors in no state dict that a forward in one of the ``modes`` writes. They are set again
        before each forward. An attribute that forward replaces is one where forward reads it first: else another call
        makes it anew."""
        model = self.single
        own = _memory([*model.parameters(), *model.state_dict().values()])
        before = {name: x for name, x in unsaved(model).items() if not _memory([x]) & own}
        begun = {name: x.detach().clone() for name, x in before.items()}
        buffers = dict(model.named_buffers())
        for mode in modes if before else ():
            output, _ = self._forward(model, self._placed(inputs), state, mode, 0)
            left, found = unsaved(model), [x.clone() for x in tensors(output)]
            for name, x in left.items():
                alike = name in begun and (x.shape, x.dtype) == (begun[name].shape, begun[name].dtype)
                if not alike or same_bits(x, begun[name]):
                    continue
                stays = name in buffers or x is before[name]
                if stays or self._reads(before[name], name, (found, x.clone()), (inputs, state, mode)):
                    self.unsaved[name] = begun[name]
        return list(self.unsaved)

    def _reads(
        self, held: torch.Tensor, name: str, found: tuple[list[torch.Tensor], torch.Tensor], call: tuple
    ) -> bool:
        """Whether another value in ``held``, the attribute ``name``, changes what forward returns or leaves there."""
        inputs, state, mode = call
        begun = held.detach().clone()
        with torch.no_grad():
            held.copy_(begun != 1)  # of any dtype, and a number that an index may be
        output, _ = self._forward(self.single, self._placed(inputs), state, mode, 0)
        same = all(map(same_bits, tensors(output), found[0])) and same_bits(unsaved(self.single)[name], found[1])
        with torch.no_grad():
            held.copy_(begun)
        return not same

    def eager(self, inputs: Sequence[Any], state: State, mode: str, rng: int) -> Run:
        """Output and buffers after one forward of the problem's own model."""
        output, buffers = self._forward(self.single, self._placed(inputs), state, mode, rng)
        return _kept(output, self.single), buffers

    def looked_at(self, inputs: Sequence[Any], state: State, mode: str) -> tuple[Run, set[int], cudnn.Noted]:
        """The same with ``rng`` 0, and two facts. The first is the numbers of output tensors that share memory with an
        input, a parameter or a buffer. The second is the products of the library."""
        placed, model = self._placed(inputs), self.single
        with cudnn.Noted() as noted:
            run = self._forward(model, placed, state, mode, 0)
        own = _memory([*tensors(placed), *_held(model)])
        views = {i for i, x in enumerate(tensors(run[0])) if _memory([x]) & own}
        return (_kept(run[0], model), run[1]), views, noted

    @property
    def allows_tf32(self) -> bool:
        """Whether cuDNN may use TF32."""
        return kind_of(self.device).accelerator and torch.backends.cudnn.allow_tf32

    def products(self, calls: Sequence[cudnn.Call]) -> tuple[float, ...]:
        """How exactly cuDNN multiplies in each of ``calls``: relative errors, 0 where the flags rule TF32 out."""
        return self._products.errors(calls) if self.allows_tf32 else (0.0,) * len(calls)

    def exact(
        self,
        inputs: Sequence[Any],
        state: State,
        mode: str,
        rng: int,
        *,
        noise: bool = False,
        products: Sequence[float] | None = (),
        **how: bool,
    ) -> Run:
        """Output and buffers after one forward in float64. ``noise`` rounds to eager's dtype after each operator. It
        rounds operands to TF32 in those calls of cuDNN whose errors in ``products`` are as large. ``None`` stands for
        all. ``bare`` gives NaN for fully masked attention, where PyTorch gives 0. ``sparse`` leaves out products of
        zero with a non-finite number."""
        inputs = map_tensors(list(inputs), lambda x: x.to(self.device, _DOUBLED.get(x.dtype, x.dtype), copy=True))
        tf32 = None if products is None else [error >= TF32_LEAST for error in products]
        rounding = (
            _Rounding(self._noise, self.dtype, tf32=tf32, turn=next(self._turns))
            if noise
            else (_Rounding(None, self.dtype, **how))
        )
        with _exactly(), rounding:
            output, buffers = self._forward(self.double, inputs, state, mode, rng)
            output = _kept(output, self.double)
        self.masks = self.masks or rounding.masks
        return output, buffers

    def _placed(self, inputs: Sequence[Any]) -> list[Any]:
        return map_tensors(list(inputs), lambda x: x.to(self.device, copy=True))

    def _forward(self, model: torch.nn.Module, inputs: Sequence[Any], state: State, mode: str, rng: int) -> Run:
        self._set_state(model, state)
        model.train(mode == "train")
        seed_for(self.device, rng)
        with torch.no_grad():
            output = model(*inputs)
        return output, {name: x.clone() for name, x in self._state_tensors(model).items() if name in state}

    def _set_state(self, model: torch.nn.Module, state: State) -> None:
        """Load the state dict, and set again all that no state dict has: ``state``'s values, or those of
        construction."""
        model.load_state_dict({name: x for name, x in state.items() if name not in self.unsaved})
        for own, begun in self._begun[model]:
            own.update(begun)
        with torch.no_grad():
            for name, x in unsaved(model).items() if self.unsaved else ():
                if name in self.unsaved:
                    x.copy_(state.get(name, self.unsaved[name]))

    def _state_tensors(self, model: torch.nn.Module) -> dict[str, torch.Tensor]:
        """The buffers of a model, and its other tensors that forward writes."""
        others = unsaved(model) if self.unsaved else {}
        return dict(model.named_buffers()) | {name: x for name, x in others.items() if name in self.unsaved}


def _attributes(model: torch.nn.Module) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The dicts of a model's modules that forward may put other values into, each with what it holds now."""
    found = []
    for module in model.modules():
        own = vars(module)
        kept = {k: v for k, v in own.items() if k not in TABLES}
        buffers = {k: v for k, v in module._buffers.items() if k in module._non_persistent_buffers_set}
        found += [(own, kept), *([(module._buffers, buffers)] if buffers else [])]
    return found


def _held(model: torch.nn.Module) -> list[torch.Tensor]:
    """All tensors that a model holds."""
    return [*model.parameters(), *model.buffers(), *unsaved(model).values()]


def _kept(output: Any, model: torch.nn.Module) -> Any:
    """The output with copies of what shares memory with what the model holds: the next run loads others into it. A
    result in much larger memory is a copy, too: PyTorch's smooth L1 loss is a number in the memory of all its terms."""
    own = _memory(_held(model))

    def kept(x: torch.Tensor) -> torch.Tensor:
        lavish = x.is_contiguous() and x.untyped_storage().nbytes() > 2 * x.nbytes
        return x.clone() if lavish or _memory([x]) & own else x

    return map_tensors(output, kept)


def _memory(found: Iterable[torch.Tensor]) -> set[int]:
    """The addresses of the memory of tensors that have elements."""
    return {x.untyped_storage().data_ptr() for x in found if x.numel()}


def _to_double(model: torch.nn.Module) -> torch.nn.Module:
    """A copy in float64, with tensors that are plain attributes, also in lists and dicts."""
    double = copy.deepcopy(model)._apply(_doubled)
    known: dict[int, Any] = {}  # modules may share a value, and write into it
    for module in double.modules():
        for name, value in list(vars(module).items()):
            if type(value) in _CONTAINERS and tensors(value) and name not in TABLES:
                setattr(module, name, known.setdefault(id(value), map_tensors(value, _doubled)))
    return double
