"""Labels: what a reader of a result should know, and what decides nothing.

Static findings come from a candidate's text alone, by its syntax tree and by patterns in the native code that it holds:
about half of what people find by reading. A finding is one entry in :data:`FINDINGS`. The other labels come from what a
worker measured after everything else was done (:mod:`kgen.evaluator.strict.profile`).
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Callable, Iterable, Iterator, Mapping

from kgen import syntax

_MOST_FOUND = 4  #: words that one label shows
_LEAST_KEPT = 0.01  #: of inputs, outputs and weights, that is worth a label when it is kept between calls
_LEAST_REPEATED = 0.7  #: of a call's time that a call with unchanged inputs takes, if nothing is remembered
_LEAST_PREPARED_MS, _LEAST_PREPARED = 0.1, 0.2  #: milliseconds, and share of a call, that are worth a label
_NO_KERNEL = "no kernel of its own: calls the library only"

# ---- what a file says ------------------------------------------------------------------------------------------

#: Ways to code that is not the library's.
_NATIVE = re.compile(
    r"(ctypes|cffi|_cffi_backend|triton|numba|cupy|cuda|pybind11|cython|pycuda|jax|tvm|cutlass|tilelang)\b.*|"
    r"torch\.utils\.cpp_extension.*|torch\.(ops|classes)\.load_library|torch\.(compile|jit|_inductor|cuda\._compile_kernel).*|"
    r"importlib.*|__import__|exec|eval|runpy.*")
_LIBRARY_OPERATORS = re.compile(
    r"torch\.(?:nn\.functional\.|Tensor\.|ops\.aten\.|_C\._nn\.|nn\.)?"
    r"(linear|bilinear|matmul|mm|bmm|addmm|addbmm|baddbmm|mv|einsum|tensordot|conv(?:_transpose)?[123]d|convolution|"
    r"scaled_dot_product_attention|multi_head_attention_forward|Linear|Conv(?:Transpose)?[123]d|Bilinear|"
    r"MultiheadAttention|LSTM|GRU|RNN)(?:\.default|\.out)?")
#: Of native code; one that does not end goes to the end of the text.
_COMMENTS = re.compile(r"//[^\n]*|/\*(?:[^*]+|\*(?!/))*(?:\*/|\Z)")


class _Reader(ast.NodeVisitor):
    """What the findings ask about; names are spelled in full: ``F.linear`` is ``torch.nn.functional.linear``."""

    def __init__(self, tree: ast.AST) -> None:
        self.imports: list[str] = []
        self.names: list[str] = []  # read or called
        self.calls: list[tuple[str, ast.Call]] = []
        self.writes: list[str] = []
        self.functions: list[ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda] = []
        self.classes: list[ast.ClassDef] = []
        self.handlers: list[ast.ExceptHandler] = []
        self.products: list[str] = []  # of operators
        self.strings: list[str] = []
        self._aliases: dict[str, str] = {}
        self._layers: dict[str, str] = {}  # attributes of self that hold a module of the library
        self._quiet = {id(node.body[0].value) for node in ast.walk(tree) if _has_docstring(node)}
        self._learn(tree)
        self.visit(tree)

    def _learn(self, tree: ast.AST) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                self.imports += [alias.name for alias in node.names]
                self._aliases |= {alias.asname: alias.name for alias in node.names if alias.asname}
            elif isinstance(node, ast.ImportFrom):
                found = {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
                self.imports += [node.module or "", *found.values()]
                self._aliases |= found
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                for target in node.targets:
                    self._layers[self.spell(target)] = self.spell(node.value.func)

    def spell(self, node: ast.AST) -> str:
        """The dotted name of an expression; what is no name in it is ``?``."""
        if isinstance(node, ast.Name):
            return self._aliases.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            return f"{self.spell(node.value)}.{node.attr}"
        return "?"

    def layer(self, name: str) -> str:
        """The class of the module that an attribute holds, or the name itself."""
        return self._layers.get(name, name)

    def visit_Name(self, node: ast.Name) -> None:
        (self.names if isinstance(node.ctx, ast.Load) else self.writes).append(self.spell(node))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        (self.names if isinstance(node.ctx, ast.Load) else self.writes).append(self.spell(node))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = self.spell(node.func)
        self.calls.append((name, node))
        if name == "setattr" and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
            self.writes.append(f"{self.spell(node.args[0])}.{node.args[1].value}")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.MatMult):
            self.products.append("@")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and id(node) not in self._quiet:
            self.strings.append(node.value)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        self.handlers.append(node)
        self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.classes.append(node)
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.functions.append(node)
        self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.functions.append(node)
        self.generic_visit(node)


def _has_docstring(node: ast.AST) -> bool:
    body = getattr(node, "body", None)
    return (isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and bool(body)
            and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant))


class Text:
    """A candidate's file as the findings see it. Raises ``SyntaxError`` where it is no Python."""

    def __init__(self, source: str) -> None:
        self._tree = syntax.parse(source)
        self.read = _Reader(self._tree)

    @cached_property
    def native(self) -> str:
        """The strings of the file, native code among them, without its comments."""
        return _COMMENTS.sub(" ", "\n".join(self.read.strings))

    @property
    def has_native_code(self) -> bool:
        """Whether it may run code of its own that is not Python."""
        return any(_NATIVE.fullmatch(name) for name in (*self.read.imports, *self.read.names))

    @cached_property
    def globals(self) -> frozenset[str]:
        """Names that are bound at the top of the file."""
        bound = [node for node in ast.iter_child_nodes(self._tree) if isinstance(node, (ast.Assign, ast.AnnAssign))]
        targets = [t for node in bound for t in (node.targets if isinstance(node, ast.Assign) else [node.target])]
        return frozenset(t.id for t in targets if isinstance(t, ast.Name))


# ---- how they are found ----------------------------------------------------------------------------------------

Find = Callable[[Text], Iterable[str]]


def _imported(*modules: str) -> Find:
    """Modules by their first name."""
    return lambda text: (name.partition(".")[0] for name in text.read.imports if name.partition(".")[0] in modules)


def _named(pattern: str) -> Find:
    """Names that are read or called."""
    compiled = re.compile(pattern)
    return lambda text: (name for name in text.read.names if compiled.fullmatch(name))


def _written(pattern: str) -> Find:
    """Names that are assigned to, by ``=`` or by ``setattr``."""
    compiled = re.compile(pattern)
    return lambda text: (name for name in text.read.writes if compiled.fullmatch(name))


def _spelled(pattern: str) -> Find:
    """Words in native code and other strings."""
    compiled = re.compile(pattern)
    return lambda text: (found.group() for found in compiled.finditer(text.native))


def _any(*finders: Find) -> Find:
    return lambda text: (word for find in finders for word in find(text))


def _library_operators(text: Text) -> Iterator[str]:
    yield from text.read.products
    for name, _ in text.read.calls:
        found = _LIBRARY_OPERATORS.fullmatch(text.read.layer(name))
        method = re.fullmatch(r".*\.(matmul|mm|bmm|addmm|mv)", name)
        if found and (name != text.read.layer(name) or not found.group(1)[0].isupper()):
            yield found.group(1).lower()
        elif method and not name.startswith("torch."):
            yield method.group(1)


def _swallowed(text: Text) -> Iterator[str]:
    for handler in text.read.handlers:
        if not any(isinstance(node, ast.Raise) for node in ast.walk(handler)):
            yield "except" if handler.type is None else ast.unparse(handler.type)


def _kept_globals(text: Text) -> Iterator[str]:
    """Names at the top of the file that functions bind anew or fill."""
    fills = {"append", "add", "update", "setdefault", "extend", "insert"}
    for function in text.read.functions:
        for node in ast.walk(function):
            if isinstance(node, ast.Global):
                yield from node.names
            elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                yield from _globals_in(text, node.value)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in fills:
                yield from _globals_in(text, node.func.value)


def _globals_in(text: Text, node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name) and node.id in text.globals:
        yield node.id


_IDENTITIES = {"data_ptr", "_version", "_cdata", "untyped_storage"}
_LOOKUPS = {"get", "setdefault", "pop"}


def _remembered(text: Text) -> Iterator[str]:
    """What tells tensors apart by where they are or which they are, where a function compares it or looks it up."""
    for function in text.read.functions:
        arguments = function.args
        given = {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)} - {"self", "cls"}
        yield from _remembered_in(function, given | {a.arg for a in (arguments.vararg, arguments.kwarg) if a})


def _remembered_in(function: ast.AST, given: set[str]) -> Iterator[str]:
    carried: dict[str, str] = {}  # names that hold an identity
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and (word := _identity(node.value, given, carried)):
            carried |= {t.id: word for target in node.targets for t in ast.walk(target) if isinstance(t, ast.Name)}
    for node in ast.walk(function):
        if isinstance(node, ast.Subscript):
            asked: list[ast.AST] = [node.slice]
        elif isinstance(node, ast.Compare):
            if _is_given(node, given):
                yield "is"
            asked = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _LOOKUPS:
            asked = list(node.args)
        else:
            continue
        yield from filter(None, (_identity(part, given, carried) for part in asked))


def _identity(node: ast.AST, given: set[str], carried: Mapping[str, str]) -> str:
    """How an expression tells one of the ``given`` tensors from others; empty where it does not.

    A remainder is no identity: an address is tested for its alignment so.
    """
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mod, ast.BitAnd)):
        return ""
    if isinstance(node, ast.Name):
        return carried.get(node.id, "")
    if isinstance(node, ast.Attribute) and node.attr in _IDENTITIES and _mentions(node, given):
        return node.attr
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "id" and _mentions(node, given):
        return "id"
    return next(filter(None, (_identity(part, given, carried) for part in ast.iter_child_nodes(node))), "")


def _mentions(node: ast.AST, given: set[str]) -> bool:
    return any(isinstance(part, ast.Name) and part.id in given for part in ast.walk(node))


def _is_given(node: ast.Compare, given: set[str]) -> bool:
    """Whether it asks if a ``given`` value is the same object as another one."""
    sides = [node.left, *node.comparators]
    same = any(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops)
    return same and any(isinstance(side, ast.Name) and side.id in given for side in sides) and not any(
        isinstance(side, ast.Constant) for side in sides)


#: Of ``ctypes``, what calling a library's functions takes.
_CALLING = re.compile(
    r"ctypes\.(CDLL|PyDLL|c_\w+|POINTER|byref|Structure|sizeof|get_errno|set_errno|util(\.find_library)?|"
    r"cdll(\.LoadLibrary)?)")


def _memory(text: Text) -> Iterator[str]:
    yield from (name for name in text.read.names if name.startswith("ctypes.") and not _CALLING.fullmatch(name))
    for name, call in text.read.calls:
        if name == "ctypes.CDLL" and call.args and isinstance(call.args[0], ast.Constant):
            yield f"CDLL({call.args[0].value!r})"


def _patched(text: Text) -> Iterator[str]:
    """Attributes of modules that are assigned to."""
    modules = {name.partition(".")[0] for name in text.read.imports}
    for name in text.read.writes:
        if "." in name and name.partition(".")[0] in modules and not name.startswith("torch.backends."):
            yield name


def _subclasses(text: Text) -> Iterator[str]:
    for kind in text.read.classes:
        if any(text.read.spell(base) == "torch.Tensor" for base in kind.bases):
            yield kind.name


@dataclass(frozen=True)
class Finding:
    """One thing that a reader would want to be told; ``{}`` stands for the words that were found.

    ``accuracy`` names the only class that it is said in; ``planned`` is a pattern of plans that say so themselves.
    """

    name: str
    says: str
    find: Find
    accuracy: str = ""
    planned: str = r"(?!)"


_TORCH = r"torch(\.\w+)*\."

#: In the order in which they are shown.
FINDINGS = (
    Finding("main operator", "calls the library for {}", _library_operators, planned=r"\(library\)"),
    Finding("compiler", "has PyTorch compile or trace it: {}",
            _named(r"torch\.(compile|jit\.(script|trace)|_dynamo\..*|_inductor\..*|export\.export)")),
    Finding("fallback", "goes on after exceptions: {}", _swallowed),
    Finding("identity", "tells tensors apart by {}", _remembered),
    Finding("content", "compares contents: {}", _named(r"torch\.(equal|allclose|isclose|hash_tensor|Tensor\.equal)")),
    Finding("globals", "keeps values in globals: {}", _kept_globals),
    Finding("memoised", "remembers results: {}", _named(r"functools\.(lru_cache|cache|cached_property)")),
    Finding("threads", "uses threads or processes: {}", _any(
        _imported("threading", "_thread", "multiprocessing", "concurrent", "asyncio", "queue", "sched"),
        _named(r"torch\.(multiprocessing|futures|jit\.fork).*|os\.(fork|spawn|posix_spawn|system|popen)\w*"),
        _spelled(r"\bstd::(thread|jthread|async)\b|\bpthread_create\b|\bfork\s*\(|\bclone3?\s*\("))),
    Finding("streams", "uses streams of its own: {}", _any(
        _named(_TORCH + r"(Stream|stream|set_stream|ExternalStream)"),
        _spelled(r"\bcu(da)?StreamCreate\w*|\bcudaStreamNonBlocking\b|\bcudaStreamPerThread\b"))),
    Finding("graphs", "uses CUDA graphs: {}", _any(
        _named(_TORCH + r"(CUDAGraph|graph|make_graphed_callables)"),
        _spelled(r"\bcu(da)?Graph\w+|\bcu(da)?StreamBeginCapture\w*"))),
    Finding("persisting cache", "pins lines in the cache: {}", _spelled(
        r"\bcudaLimitPersistingL2CacheSize\b|\baccessPolicyWindow\b|\bcudaAccessProperty\w+|\bcudaStreamAttrValue\b|"
        r"\bcudaLaunchAttributeAccessPolicyWindow\b|\bcreatepolicy\b|\bevict_last\b|\bdiscard\.global\b")),
    Finding("lower precision", "computes in a lower precision: {}", _any(
        _named(r"torch\.(float16|half|bfloat16|float8\w*|u?int8|quantize_\w+|fake_quantize_\w+)|.*\.(half|bfloat16)|"
               + _TORCH + r"autocast"),
        _spelled(r"\b__half2?\b|\bhalf2?\b(?=\s+\w+\s*[=;,)\[])|\b(__)?nv_bfloat16\w*|\b__nv_fp8\w*|\bwmma\b|\bwgmma\b|"
                 r"\bmma\.sync\b|\.tf32\b|__float_to_tf32|\b_Float16\b|\b__bf16\b")),
        accuracy="fp32", planned=r"gemm\["),
    Finding("fast math", "is compiled with fast mathematics: {}",
            _spelled(r"-{1,2}use_fast_math\b|-ffast-math\b|-Ofast\b|-funsafe-math-optimizations\b|-ffinite-math-only\b|"
                     r"-ftz=true\b|-prec-div=false\b|\b__(exp|log|sin|cos|pow|tan|fdivide)\w*f\s*\(")),
    Finding("switches", "changes PyTorch's switches: {}", _any(
        _written(r"torch\.backends\..*"),
        _named(r"torch\.(set_(num_threads|num_interop_threads|default_dtype|default_device|flush_denormal|"
               r"float32_matmul_precision|deterministic_debug_mode|grad_enabled)|use_deterministic_algorithms)"))),
    Finding("seeds", "sets or reads the state of random numbers: {}", _named(
        r"torch\.(manual_seed|seed|initial_seed|set_rng_state|get_rng_state|random\..*|default_generator.*)|"
        r"torch\.cuda\.(manual_seed\w*|set_rng_state|get_rng_state|initial_seed|default_generators.*)|"
        r"random\.seed|numpy\.random\.seed")),
    Finding("patches", "assigns into modules: {}", _patched),
    Finding("subclass", "makes tensors of a class of its own: {}", _any(
        _subclasses, _named(r".*\.(_make_subclass|_make_wrapper_subclass|as_subclass|__torch_function__|"
                            r"__torch_dispatch__)|torch\.utils\._python_dispatch\..*|torch\.overrides\..*"))),
    Finding("dispatcher", "registers operators: {}", _any(
        _named(r"torch\.library\..*"), _spelled(r"\bTORCH_LIBRARY\w*"))),
    Finding("frames", "looks at frames or other objects: {}", _any(
        _named(r"sys\.(_getframe|_current_frames|_current_exceptions|settrace|setprofile)|.*\.(f_back|f_locals|f_globals|"
               r"tb_frame|gi_frame|__globals__|__closure__|__subclasses__)|globals|locals|vars|"
               r"gc\.get_\w+"), _imported("gc", "inspect", "traceback", "weakref"))),
    Finding("memory", "reaches into memory: {}", _any(
        _memory, _imported("mmap"), _spelled(r"/proc/(self|\d+)/(mem|maps)|\bprocess_vm_(read|write)v\b|\bptrace\b"))),
    Finding("system", "imports {}", _imported(
        "os", "sys", "socket", "subprocess", "signal", "atexit", "pickle", "marshal", "builtins", "resource", "fcntl",
        "platform", "select", "code", "codecs", "http", "urllib", "requests")),
    Finding("clocks", "reads the clock: {}", _any(
        _imported("time", "timeit", "datetime"),
        _spelled(r"\bclock64?\s*\(|%clock(64)?\b|%globaltimer\b|\bclock_gettime\b|\brdtsc\w*|\bstd::chrono\b"))),
    Finding("files", "reads or writes files: {}", _any(
        _named(r"open|io\.open|pathlib\.\w+|torch\.(load|save|from_file)|numpy\.(load|save|memmap|fromfile)|tempfile\.\w+|"
               r"shutil\.\w+"), _spelled(r"\bfopen\s*\(|\bi?of?stream\b|\bifstream\b|\bshm_open\b|\bmemfd_create\b"))),
    Finding("text as code", "runs text as code: {}", _any(
        _named(r"exec|eval|compile|__import__|importlib\..*|runpy\..*|types\.(CodeType|FunctionType)"),
        _spelled(r"\bPyRun_\w+|\bdlopen\b|\bdlsym\b"))),
    Finding("kgen", "imports the evaluator or the problem: {}", _any(
        _imported("kgen", "__main__", "problem"), _named(r"sys\.modules.*"))),
    Finding("shapes", "treats sizes one by one: {}", lambda text: _sizes(text)),
)


def _sizes(text: Text) -> Iterator[str]:
    """Comparisons of a tensor's size with numbers."""
    for function in text.read.functions:
        for node in ast.walk(function):
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Eq, ast.In, ast.NotIn)):
                size = ast.unparse(node.left)
                large = [c.value for part in node.comparators for c in ast.walk(part)
                         if isinstance(c, ast.Constant) and isinstance(c.value, int) and c.value > 4]
                if re.search(r"\.(shape\[|size\(|numel\(|shape$)", size) and large:
                    yield size


def static_labels(source: str, *, accuracy: str, plan: str = "") -> list[str]:
    """What is found in ``source``, one label each; nothing where it is no Python. ``plan`` says what a reader of the
    result is told anyway."""
    try:
        text = Text(source)
        found = [(finding, list(dict.fromkeys(finding.find(text)))) for finding in FINDINGS
                 if finding.accuracy in ("", accuracy) and not re.search(finding.planned, plan)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return [f"static: {finding.says.format(_listed(words))}" for finding, words in found if words]


def has_native_code(source: str) -> bool:
    """Whether a file may run code of its own that is not Python; it is assumed where it cannot be told."""
    try:
        return Text(source).has_native_code
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True


def _listed(words: list[str]) -> str:
    shown = [" ".join(word.split())[:60] for word in words[:_MOST_FOUND]]
    return ", ".join(shown) + (f" and {len(words) - _MOST_FOUND} more" if len(words) > _MOST_FOUND else "")


# ---- what a worker measured ------------------------------------------------------------------------------------


def measured_labels(
    found: Mapping[str, Any], *, native: bool, prepare_ms: float | None, cuda: bool = True
) -> list[str]:
    """What :func:`kgen.evaluator.strict.profile.take` brought, which is a worker's and may be anything, in words.

    ``native`` is whether the file may run code of its own that is not Python; ``prepare_ms`` what the first call after
    new weights took more when it was timed. Away from a GPU (``cuda``), Python's time counts with the kernels'.
    """
    get = _Numbers(found)
    what = "own kernels" if cuda else "own kernels and Python"
    return [*_share(get, native, what), *_kept(get), *_repeated(get), *_prepared(get, prepare_ms)]


class _Numbers:
    """Numbers of a worker's answer; ``None`` for what is no number that makes sense."""

    def __init__(self, found: Mapping[str, Any]) -> None:
        self._found = found

    def __call__(self, name: str) -> int | None:
        value = self._found.get(name)
        return value if type(value) is int and 0 <= value < 1 << 62 else None


def _share(get: _Numbers, native: bool, what: str) -> Iterator[str]:
    own, total = get("own_ns"), get("all_ns")
    if not native or (own == 0 and total):
        yield _NO_KERNEL
    elif total and own is not None:
        percent = 100 * min(own / total, 1.0)
        yield f"{what} {percent:.0f}% of the time" if percent >= 1 else f"{what} less than 1% of the time"
    else:
        yield "share of own kernels not known: the profiler sees no kernel here"


def _kept(get: _Numbers) -> Iterator[str]:
    kept, more, known = get("kept_bytes"), get("more_bytes"), get("known_bytes")
    if kept is not None and known and kept >= _LEAST_KEPT * known:
        yield f"keeps {_bytes(kept)} between calls"
    if more is not None and known and more >= _LEAST_KEPT * known:
        yield f"keeps {_bytes(more)} more after every call"


def _repeated(get: _Numbers) -> Iterator[str]:
    fresh, same = get("fresh_ns"), get("same_ns")
    if fresh and same is not None and same < _LEAST_REPEATED * fresh:
        yield f"a call with unchanged inputs takes {100 * same / fresh:.0f}% of the time of others"


def _prepared(get: _Numbers, prepare_ms: float | None) -> Iterator[str]:
    """Two measurements must agree: a first call is slow for many reasons."""
    again, fresh = get("prepare_ns"), get("fresh_ns")
    if again is None or not fresh or prepare_ms is None:
        return
    more = min(again / 1e6, prepare_ms)
    if more >= max(_LEAST_PREPARED_MS, _LEAST_PREPARED * fresh / 1e6):
        yield f"first call after new weights takes {more:.2g} ms more"


def _bytes(number: int) -> str:
    """In units of 1000."""
    for unit in ("bytes", "kB", "MB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} GB"
