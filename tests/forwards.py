"""Small forwards that use every operator which is lowered, for tests of what lowering and kernels compute."""

from __future__ import annotations

from models import made, source

from kgen.problems.problem import LoadedProblem

#: Inputs by their names in the forwards.
INPUTS = {
    "x": "torch.randn(4, 33)",
    "y": "torch.randn(4, 33)",
    "z": "torch.randn(4, 5, 32)",
    "p": "torch.rand(4, 33)",
    "image": "torch.randn(2, 8, 6, 4)",
    "volume": "torch.randn(2, 3, 4, 6, 5)",
    "grid": "torch.rand(2, 5, 7, 2) * 2.6 - 1.3",
    "points": "torch.rand(2, 3, 5, 7, 3) * 2.6 - 1.3",
    "theta": "torch.randn(2, 2, 3)",
    "i": "torch.randint(-9, 9, (4, 33))",
    "j": "torch.randint(1, 9, (4, 33))",
    "m": "torch.rand(4, 33) > 0.5",
    "at": "torch.randint(0, 33, (4, 7))",
    "few": "torch.randint(-5, 5, (3, 9))",
    "t": "torch.randint(0, 33, (4,))",
    "square": "torch.randn(33, 33)",
    "rows": "torch.randn(40, 33)",
    "segment": "torch.randint(0, 6, (40,))",
    "pairs": "torch.randint(0, 6, (5, 2))",
}

#: Each case: what forward returns; it may have statements before that.
CASES = {
    # Dtypes
    "comparisons": "return x > y, (x <= 0.5) & (y < x), x == x, ~(x > 0), (x != y) | m, m ^ (x >= 0)",
    "choices": "return torch.where(x > 0, x * 2, y), x.masked_fill(m, -1.5).relu(), torch.where(m, 1.0, 0.0), torch.where(m, i, j)",
    "masks as factors": "return x * m, m + x, x - i",
    "integers": "return i * 3 + j, i.abs(), torch.maximum(i, j), i.clamp(-3, 3), i & 3, i.clamp(min=0) - j, (-i).sign()",
    "integers by whole numbers": "return i // 3, i % 5, i % 1 + (i << 2), i >> 1, torch.div(i, 4, rounding_mode='floor'), i.to(torch.uint8) % 7",
    "integers by integers": "k, n = j - 5, i.to(torch.int32)\nreturn i // (k + (k == 0).long()), n % j, i << j, n >> (k + 30), i >> j, n << j.to(torch.int32), (i ^ j) % j",
    "integers that become floats": "return i / j, i.float() / 2, i.exp(), i * 0.5, i.float() + torch.where(m, i, j)",
    "conversions": "return x.long(), x.to(torch.int32), x.bool(), m.float(), (x > 0).long(), i.to(torch.int16), i.to(torch.uint8)",
    "the largest": "a = torch.where(x > 1.5, float('nan'), torch.where(x < -1, -float('inf'), x))\nreturn a.topk(3)[0], x.topk(2)[1]",
    "the smallest": "return torch.topk(z * 2, 2, 1, largest=False)[1]",
    "buckets": "b = torch.linspace(-1, 1, 9, device=x.device).to(x.dtype)\nnan = torch.where(x > 1.0, float('nan'), x)\nreturn torch.bucketize(nan, b), torch.bucketize(x, b, right=True, out_int32=True), torch.diff(x, dim=1)",
    "any and all": "return (x > 0.1).any(1), (x < 2).all(1), x.any(1), (x > 0).sum(1)",
    "positions": "return x + torch.arange(33, device=x.device), torch.arange(4, device=x.device)[:, None] * x, torch.full((33,), 2.5, device=x.device) * x",
    "spaced": "return x + torch.linspace(-1, 3, 33, device=x.device), square * torch.eye(33, device=x.device), x * torch.arange(-2, 14.5, 0.5, device=x.device)",
    "small integers, reduced": "k, n = (i + j).to(torch.int8), (i.abs() * 20).to(torch.uint8)\nreturn k.sum(1), n.sum(0), k.amax(1), n.amin(1), k.argmax(1), n.max(1), k.min(), n.to(torch.int16).sum((0, 1))[None]",
    "integers, reduced": "k, n = i.to(torch.int32), i * (1 << 40) + j\nreturn k.sum(1), n.sum(0), k.amax(1), n.amin((0, 1))[None], k.argmax(1), n.argmin(1), n.max(1), k.min()[None], (j % 3 + 1).prod(1), few.view(3, 3, 3).sum(2)",
    # Functions
    "activations": "return F.celu(x), F.hardshrink(x), F.softshrink(x), F.tanhshrink(x), F.softsign(x), F.prelu(x, square[0])",
    "gates": "return F.glu(x[:, :32])",
    "trigonometry": "q = p * 1.8 - 0.9\nreturn q.tan(), q.asin(), q.acos(), q.atan(), q.sinh(), q.cosh(), q.asinh(), (q + 2).acosh(), q.atanh(), torch.atan2(q, p)",
    "powers and logarithms": "return p ** 3, p ** -1, p ** 0.5, p ** p, 2 ** x, x.exp2(), p.log2(), p.log10(), p.erfc(), (x + 9).lgamma(), torch.hypot(x, y), torch.special.entr(p), torch.logaddexp(x, y)",
    "rounding": "a = x * 7\nreturn a.floor(), a.ceil(), a.trunc(), a.round(), a.sign(), a.frac(), a.fmod(2.5), a.remainder(2.5), a.remainder(-2.5), a // 1.5, torch.div(a, y, rounding_mode='floor'), torch.div(a, y, rounding_mode='trunc')",
    "bounds that are tensors": "return torch.clamp(x, y, y + p), x.clamp(square[0], p), torch.clamp(x, x.log(), y)",
    "not a number": "a = x.round().log()\nreturn a.isnan(), a.isinf(), torch.nan_to_num(a, 0.0, 1.0, -1.0), a.isfinite(), a.clamp(-1, 1), torch.fmax(a, x), torch.copysign(x, y), torch.xlogy(x.round(), p)",
    "not a number, in place": "a = x.round().log()\na.nan_to_num_(0.0, 1.0, -1.0)\nreturn a * 2",
    "products and sums of three": "return torch.addcmul(x, y, y, value=0.5), torch.addcdiv(x, y, p + 1), torch.lerp(x, y, 0.3), torch.sub(x, y, alpha=2)",
    "a list of one": "return torch.gradient(x, dim=1)[0]",
    # Views and masks
    "written in parts": "a = x * 2\na[:, 3] = 0.5\na[:, ::2] += y[:, ::2]\na[:, 5:9] = p[:, :4]\na[:, -1] = x[:, 0]\na[:, 7::5] = m[:, 7::5].float()\nreturn a",
    "images written in parts": "a = torch.zeros_like(image)\na[:, :, 1:-1, ::2] = image[:, :, :4, ::2]\na[:, 2, 1] = 1.0\nreturn a, a.amax(1)",
    "triangles": "return torch.triu(square) + torch.tril(square, -1).exp()",
    "a value where a mask holds": "z = x * 2\nz[x > 0] = 0.5\nk = i + 1\nk[m] = 7\nreturn z.relu(), k",
    "a causal mask": "return square.masked_fill(torch.ones(33, 33, device=x.device).tril() == 0, float('-inf')).softmax(-1)",
    "concatenated": "return torch.cat([x.relu(), y[:, :12], x * y[:, :1]], dim=1) * 2, torch.stack([x, x.exp()], dim=1)",
    "padded": "return F.pad(z, (1, 2, 0, 3), value=1.5).tanh(), F.pad(z.cos(), (2, -1)), F.pad(z, (2, 1), mode='reflect') + 1",
    "padded around": "return F.pad(z, (3, 2), mode='circular') * 2, F.pad(image, (1, 2, 0, 1), mode='circular').relu(), F.pad(image, (1, 0, 2, 1), mode='replicate').relu()",
    "rolled and repeated": "return torch.roll(z, (2, -3), (1, 2)) + z, x.repeat(1, 3) * 2, x[:, None].tile(1, 2, 1) + 1, x.flip(1) * 2",
    "rolled and flipped": "return torch.log_softmax(z.roll(1, 1).flip(1), 1), F.interpolate(z, scale_factor=2).flip(2) * 2",
    "shuffled": "return F.pixel_shuffle(image, 2).relu(), F.pixel_unshuffle(image, 2) + 1, F.pixel_shuffle(image, 2), F.channel_shuffle(image, 4)",
    "in another order": "a = image.to(memory_format=torch.channels_last).relu()\nreturn a, a.contiguous() * 2, image.clone(memory_format=torch.channels_last) + 1",
    "parts": "a, b, c = x.split(11, dim=1)\nd, e = z.chunk(2, dim=-1)\nf, *_ = z.unbind(1)\nreturn a * torch.sigmoid(b) + c, d * F.gelu(e), f.cos(), z.narrow(1, 1, 2) + 1, z.movedim(1, -1) * 2",
    "windows and diagonals": "return z.unfold(2, 4, 3) * 2, torch.diagonal(image, 0, 2, 3).exp(), torch.diag_embed(x) * 2",
    "bilinear": "return F.interpolate(image, scale_factor=2, mode='bilinear'), F.interpolate(image, size=(9, 3), mode='bilinear', align_corners=True).relu()",
    "bicubic": "return F.interpolate(image, size=(9, 7), mode='bicubic'), F.interpolate(image, scale_factor=2, mode='bicubic').relu(), F.interpolate(image, size=(3, 9), mode='bicubic', align_corners=True)",
    "made smaller, smoothly": "return F.interpolate(image, size=(4, 3), mode='bilinear', antialias=True) * 2",
    "sampled": "return F.grid_sample(image, grid, align_corners=False), F.grid_sample(image, grid, align_corners=True, padding_mode='border').relu(), F.grid_sample(volume, points, align_corners=False)",
    "sampled at the nearest": "return F.grid_sample(image, grid, 'nearest', 'reflection', align_corners=False), F.grid_sample(image, grid, 'nearest', 'zeros', align_corners=True)",
    "sampled in cubes": "return F.grid_sample(image, grid, 'bicubic', 'reflection', align_corners=True), F.grid_sample(image, grid, 'bicubic', align_corners=False)",
    "moved and turned": "return F.grid_sample(image, F.affine_grid(theta, (2, 8, 5, 7), align_corners=False), padding_mode='reflection', align_corners=False)",
    # Gathers
    "embedding": "return F.embedding(at, square) * 2",
    "bags": "return F.embedding_bag(at, square, mode='sum') * 2, F.embedding_bag(at[:, :3], square, mode='mean').relu()",
    "bags, weighted and largest": "return F.embedding_bag(at, square, mode='max'), F.embedding_bag(at, square, per_sample_weights=x.gather(1, at), mode='sum')",
    "gathered": "return x.gather(1, at).relu()",
    "selected": "return x.index_select(1, few[0].abs()) * 3",
    "taken along": "return torch.take_along_dim(x, at, dim=1) * 2, torch.take_along_dim(square[:1], at, dim=1).exp(), x.take_along_dim(few[:1].abs(), 1) + 1",
    "rows selected": "return square.index_select(0, t) * 3, square[t].relu()",
    "indexed": "return z[:, few].exp()",
    "indexed twice": "return image[:, few, few[0].clamp(0, 3)] * 2",
    "one of many": "return F.one_hot(at, 33) * 2",
    # Scatters
    "segments": "a = torch.zeros(6, 33, dtype=x.dtype)\nreturn x * 2, a.index_add(0, segment, rows.square()), a.index_add(0, segment, rows), a[:, 0].index_add(0, segment, rows[:, 3]), torch.zeros(6, dtype=x.dtype).index_add(0, segment, torch.ones_like(rows[:, 0]))",
    "extremes of segments": "a = torch.full((6, 33), -float('inf'), dtype=x.dtype)\nb = torch.where(rows > 2.0, float('nan'), rows)\nreturn x * 2, a.index_reduce(0, segment, b, 'amax', include_self=False), square[:6].index_reduce(0, segment, rows, 'amin'), square[:6].index_reduce(0, segment, rows, 'prod')",
    "scattered": "return x.scatter_add(1, at, y) * 2, x.scatter(1, at[:, :1], y), (x + 1).scatter_reduce(1, at, y, 'amax'), (i * 2).scatter_add(1, at, i), x.scatter(1, t[:, None], 2.5)",
    "scattered in rows": "return x * 2, square.index_copy(0, few[0, :1].abs(), rows[:1]), square.index_fill(1, few[0].abs(), 2.0), torch.zeros(6, 5, 33, dtype=x.dtype).index_put((pairs[:, 0], pairs[:, 1] - 3), rows[:5], accumulate=True)",
    # Reductions of few
    "of few": "return image.softmax(1), image.argmax(1), image.log_softmax(1).exp() + image.softmax(1)[:, 1:2], image.prod(1) * image.amin(1), image[:, :3].logsumexp(1), z.unflatten(2, (8, 4)).mean(3)",
    "of few, side by side": "a = z.reshape(-1, 4, 8)\nreturn a.softmax(2), F.layer_norm(a, (8,)), a.argmin(2), a.norm(dim=2), F.rms_norm(a[..., :3], (3,)), a.var(2)",
    "of few, not numbers": "a = torch.where(image > 2.0, float('nan'), torch.where(image < -1.5, -float('inf'), torch.where(image > 1.8, float('inf'), image)))\nreturn a.amax(1), a.amin(1), a.argmax(1), a.softmax(1), a.logsumexp(1)",
    "of few, reduced again": "a = image.softmax(1)\nreturn (a[:, 1:] * image[:, 1:]).sum((2, 3)), (a.argmax(1) == image.argmin(1)).float().mean(), a.square()[:, 1:].sum((2, 3))",
    "windows of several sizes": "return F.adaptive_max_pool2d(image, (4, 3), return_indices=True), F.adaptive_max_pool2d(image, 2).relu(), F.adaptive_avg_pool2d(image, (4, 3)), F.adaptive_max_pool1d(z, 5)",
    # Losses and norms
    "cross entropy": "return F.cross_entropy(x, t, reduction='none')",
    "cross entropy, smoothed": "return F.cross_entropy(x, t, reduction='none', label_smoothing=0.1, ignore_index=3)",
    "differences": "return F.smooth_l1_loss(x, y, reduction='none'), F.huber_loss(x, y, reduction='none', delta=0.7), F.mse_loss(x, y, reduction='none')",
    "divergence": "return F.kl_div(x, p, reduction='none'), F.binary_cross_entropy(p, p, reduction='none'), F.binary_cross_entropy_with_logits(x, p, reduction='none')",
    "margins": "return F.triplet_margin_loss(x, y, p, reduction='none')",
    "similarity": "return F.cosine_similarity(x, y, dim=1)",
    "distances": "return torch.cdist(x, square.relu()) + 1.0",
    "instance norm": "return F.instance_norm(image).relu()",
    "moments": "return x.var(1), x.std(1, keepdim=True), torch.var_mean(x, dim=1, correction=0)",
    "norms of vectors": "n = torch.linalg.vector_norm\nreturn n(x, dim=1, dtype=x.dtype), n(z, 3, dim=(1, 2), keepdim=True), n(x, float('-inf'), dim=1), n(x, 0, dim=1), x * n(x)",
    "norms": "return x.norm(dim=1), x.norm(p=1, dim=1), x.norm(p=3, dim=1), x.norm(p=float('inf'), dim=1), F.normalize(x, p=1, dim=1)",
}  # fmt: skip


def _names(text: str) -> set[str]:
    """The names that Python source reads."""
    return {name.strip() for name in text.replace("\n", " ").translate(str.maketrans("()[]{},.*+-/&|^~=<>:%", " " * 21)).split()}


def problem(case: str) -> LoadedProblem:
    """A case as a problem, whose inputs are those that it names."""
    used = [name for name in INPUTS if name in _names(CASES[case])]
    return made(source(CASES[case], ", ".join(INPUTS[name] for name in used), arguments=", ".join(used)))
