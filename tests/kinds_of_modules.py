"""Small modules of the kinds that people write, by name: what forward does, its inputs, and the rest of ``__init__``."""

from __future__ import annotations

_X, _IMAGE, _NODES = "torch.randn(6, 20)", "torch.randn(2, 8, 6, 4)", "torch.randn(40, 12), torch.randint(0, 6, (40,))"
_WORDS = "self.register_buffer('packed', torch.randint(-2 ** 31, 2 ** 31 - 1, (4, 24)).to(torch.int32))\nself.register_buffer('shift', torch.arange(0, 32, 4, dtype=torch.int32))"

#: Each module; forward's parameters are ``x`` and, of a second and a third input, ``y`` and ``z``.
MODULES: dict[str, tuple[str, str, str]] = {
    # Integers and hashes
    "a hash of corners": ("c = torch.floor(x * 7).long()[:, None] + self.corners\nh = (c * self.primes)\nh = (h[..., 0] ^ h[..., 1]) % 32\nt = x * 7 - torch.floor(x * 7)\n"
                          "w = torch.where(self.corners.bool(), t[:, None], 1 - t[:, None]).prod(-1)\nreturn (self.table[h] * w[..., None]).sum(1)", "torch.rand(40, 2)",
                          "self.table = nn.Parameter(torch.randn(32, 4))\nself.register_buffer('corners', torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]]))\nself.register_buffer('primes', torch.tensor([1, 2654435761]))"),
    "a hash of words": ("h = x\nfor shift in (16, 15):\n    h = (h ^ (h >> shift)) * 0x7feb352d\nreturn self.table[h.remainder(self.table.shape[0])]", "torch.randint(0, 1 << 20, (40,))", "self.table = nn.Parameter(torch.randn(17, 4))"),
    "rows and columns of places": ("row, col = x // 7, x % 7\nreturn self.row[row] + self.col[col]", "torch.randint(0, 49, (6, 20))", "self.row, self.col = nn.Parameter(torch.randn(7, 8)), nn.Parameter(torch.randn(7, 8))"),
    "bits of bytes": ("return ((x[..., None] >> torch.arange(8)) & 1).to(self.w.dtype).flatten(1) @ self.w", "torch.randint(0, 256, (6, 5))", "self.w = nn.Parameter(torch.randn(40, 20))"),
    "whole steps": ("return (torch.clamp(torch.round(x / self.step), -8, 7) * self.step, torch.div(x, self.step, rounding_mode='floor'))", _X, "self.step = nn.Parameter(torch.rand(20) + 0.5)"),
    # Packed weights
    "words of four bits": ("w = ((self.packed[:, None] >> self.shift[:, None]) & 15).flatten(0, 1) - 8\nreturn x @ (w.to(x.dtype) * self.scale)", "torch.randn(6, 32)", f"{_WORDS}\nself.scale = nn.Parameter(torch.rand(24))"),
    "groups of four bits": ("w = ((self.packed[:, None] >> self.shift[:, None]) & 15).flatten(0, 1)\nreturn F.gelu(x @ (self.scale[torch.arange(32) // 8] * (w - self.zero).to(x.dtype)))", "torch.randn(6, 32)",
                            f"{_WORDS}\nself.scale = nn.Parameter(torch.rand(4, 24))\nself.register_buffer('zero', torch.randint(0, 15, (24,)))"),
    "bytes and scales": ("return F.linear(x, self.w.to(x.dtype) * self.scale, self.bias)", _X, "self.register_buffer('w', torch.randint(-128, 128, (24, 20), dtype=torch.int8))\nself.scale, self.bias = nn.Parameter(torch.rand(24, 1)), nn.Parameter(torch.randn(24))"),
    "a book of weights": ("return F.linear(x, self.book[self.code])", _X, "self.book = nn.Parameter(torch.randn(16))\nself.register_buffer('code', torch.randint(0, 16, (24, 20)))"),
    "a weight of length one": ("return F.linear(x, self.g[:, None] * self.v / self.v.norm(dim=1, keepdim=True)).relu()", _X, "self.g, self.v = nn.Parameter(torch.rand(24)), nn.Parameter(torch.randn(24, 20))"),
    "a standardised kernel": ("w = self.w - self.w.mean((1, 2, 3), keepdim=True)\nreturn F.conv2d(x, w / (w.std((1, 2, 3), keepdim=True) + 1e-5), padding=1).relu()", _IMAGE, "self.w = nn.Parameter(torch.randn(32, 8, 3, 3))"),
    "a low rank beside": ("return F.linear(x, self.w + self.up @ self.down * 0.5)", _X, "self.w, self.up, self.down = nn.Parameter(torch.randn(24, 20)), nn.Parameter(torch.randn(24, 4)), nn.Parameter(torch.randn(4, 20))"),
    # Classes of images
    "dice": ("p = x.softmax(1)\nh = F.one_hot(y, 5).movedim(-1, 1).to(p.dtype)\nreturn 1 - (2 * (p * h).sum((2, 3)) / (p.square() + h).sum((2, 3))).mean()", "torch.randn(2, 5, 9, 8), torch.randint(0, 5, (2, 9, 8))", ""),
    "focal": ("p = F.log_softmax(x, 1).gather(1, y[:, None]).squeeze(1)\nreturn (-(1 - p.exp()) ** 2 * p * self.weight[y]).mean()", "torch.randn(2, 5, 9, 8), torch.randint(0, 5, (2, 9, 8))", "self.register_buffer('weight', torch.rand(5))"),
    "a share of right pixels": ("return (x.argmax(1) == y).float().mean((1, 2)), x.softmax(1).amax(1).mean()", "torch.randn(2, 5, 9, 8), torch.randint(0, 5, (2, 9, 8))", ""),
    "overlap of classes": ("p, h = x.sigmoid(), (y[:, None] == torch.arange(5)[:, None, None]).to(x.dtype)\nboth = (p * h).sum((0, 2, 3))\nreturn both / (p.sum((0, 2, 3)) + h.sum((0, 2, 3)) - both)", "torch.randn(2, 5, 9, 8), torch.randint(0, 5, (2, 9, 8))", ""),
    "uncertain pixels": ("p = x.softmax(1)\nreturn -(p * p.clamp_min(1e-6).log()).sum(1)", "torch.randn(2, 5, 9, 8)", ""),
    "a smooth cross entropy": ("return F.cross_entropy(x, y, weight=self.weight, label_smoothing=0.1)", "torch.randn(40, 7), torch.randint(0, 7, (40,))", "self.register_buffer('weight', torch.rand(7) + 0.5)"),
    # Tiny axes
    "quaternions": ("q = F.normalize(x, dim=-1)\nw, i, j, k = q.unbind(-1)\nreturn torch.stack([1 - 2 * (j * j + k * k), 2 * (i * j - k * w), 2 * (i * k + j * w)], -1)", "torch.randn(40, 4)", ""),
    "colours": ("return torch.einsum('bchw,dc->bdhw', x, self.m).clamp(0, 1)", "torch.rand(2, 3, 6, 5)", "self.m = nn.Parameter(torch.rand(3, 3))"),
    "norms of fours": ("a = x.unflatten(1, (5, 4))\nreturn F.layer_norm(a, (4,), self.w, self.b) + a.mean(-1, keepdim=True)", _X, "self.w, self.b = nn.Parameter(torch.rand(4)), nn.Parameter(torch.rand(4))"),
    "two experts": ("g = self.gate(x).softmax(-1)\nreturn g[:, :1] * self.a(x) + g[:, 1:] * self.b(x).relu()", _X, "self.gate, self.a, self.b = nn.Linear(20, 2), nn.Linear(20, 24), nn.Linear(20, 24)"),
    "distances of points": ("d = (x[:, None] - self.centre).square().sum(-1)\nreturn torch.exp(-d) @ self.w, d.argmin(1)", "torch.randn(40, 3)", "self.centre, self.w = nn.Parameter(torch.randn(9, 3)), nn.Parameter(torch.randn(9, 4))"),
    "a vote of heads": ("return x.unflatten(1, (4, 5)).softmax(-1).prod(1).log()", _X, ""),
    # Segments and scatters
    "a mean of segments": ("s = torch.zeros(6, 12, dtype=x.dtype).index_add(0, y, x)\nn = torch.zeros(6, dtype=x.dtype).index_add(0, y, torch.ones_like(x[:, 0]))\nreturn s / n.clamp_min(1)[:, None]", _NODES, ""),
    "a maximum of segments": ("m = torch.full((6, 12), float('-inf'), dtype=x.dtype).scatter_reduce(0, y[:, None].expand(-1, 12), x, 'amax')\nreturn x - m[y]", _NODES, ""),
    "a softmax of segments": ("e = x.exp()\ns = torch.zeros(6, 12, dtype=x.dtype).index_add(0, y, e)\nreturn e / s.index_select(0, y)", _NODES, ""),
    "messages along edges": ("a = self.linear(x)\nreturn (a * 0.1).index_add(0, self.target, a[self.source] * self.w[:, None]).relu()", "torch.randn(40, 12)",
                             "self.linear = nn.Linear(12, 8)\nself.w = nn.Parameter(torch.rand(90))\nself.register_buffer('source', torch.randint(0, 40, (90,)))\nself.register_buffer('target', torch.randint(0, 40, (90,)))"),
    "a histogram": ("at = (x * 4).long().clamp(0, 3)\nreturn torch.zeros(6, 4, dtype=x.dtype).scatter_add(1, at, torch.ones_like(x))", "torch.rand(6, 20)", ""),
    "written tokens": ("a = x.masked_fill(y, 0.0)\nreturn self.token.expand(6, 20).scatter(1, self.at.expand(6, 5), a)", "torch.randn(6, 5), torch.rand(6, 5) > 0.5", "self.token = nn.Parameter(torch.randn(1, 20))\nself.register_buffer('at', torch.randperm(20)[None, :5])"),
    "a table with new rows": ("return x + self.table.index_copy(0, self.at, self.new).index_fill(1, self.at, 0.5)", "torch.randn(2, 9, 20)", "self.table, self.new = nn.Parameter(torch.randn(9, 20)), nn.Parameter(torch.randn(3, 20))\nself.register_buffer('at', torch.tensor([1, 5, 7]))"),
    "a voxel grid": ("at = (x * 4).long().clamp(0, 3)\nreturn torch.zeros(4, 4, 4, dtype=x.dtype).index_put((at[:, 0], at[:, 1], at[:, 2]), x.norm(dim=1), accumulate=True)", "torch.rand(40, 3)", ""),
    # Tables
    "bags of words": ("return self.bag(x).relu()", "torch.randint(0, 30, (6, 5))", "self.bag = nn.EmbeddingBag(30, 8, mode='mean')"),
    "factors": ("e = self.table(x)\nreturn 0.5 * (e.sum(1).square() - e.square().sum(1)).sum(1) + self.bias(x).sum((1, 2))", "torch.randint(0, 30, (6, 5))", "self.table, self.bias = nn.Embedding(30, 8), nn.Embedding(30, 1)"),
    "pairs below the diagonal": ("e = self.table(x)\nreturn torch.bmm(e, e.mT)[:, self.i, self.j]", "torch.randint(0, 30, (6, 5))", "self.table = nn.Embedding(30, 8)\ni = torch.tril_indices(5, 5, -1)\nself.register_buffer('i', i[0])\nself.register_buffer('j', i[1])"),
    "codes of vectors": ("d = x.square().sum(1, keepdim=True) - 2 * x @ self.book.t() + self.book.square().sum(1)\nat = d.argmin(1)\nreturn self.book[at], at", _X, "self.book = nn.Parameter(torch.randn(17, 20))"),
    "one of many experts": ("at = self.gate(x).argmax(1)\nreturn F.one_hot(at, 4).to(x.dtype) @ self.w", _X, "self.gate = nn.Linear(20, 4)\nself.w = nn.Parameter(torch.randn(4, 8))"),
    "a few of many experts": ("w, at = x.softmax(-1).topk(2)\nreturn w / w.sum(-1, keepdim=True), at", _X, ""),
    # Attention
    "windows that are rolled": ("a = torch.roll(x, (-1, -1), (1, 2)).view(2, 2, 2, 2, 2, 8).transpose(2, 3).reshape(8, 4, 8)\ns = a @ a.mT + self.table[self.at].view(4, 4)\nreturn s.softmax(-1) @ a", "torch.randn(2, 4, 4, 8)",
                                "self.table = nn.Parameter(torch.randn(9))\nself.register_buffer('at', torch.randint(0, 9, (16,)))"),
    "a slope of distances": ("d = (torch.arange(9)[None] - torch.arange(9)[:, None]).to(x.dtype)\nreturn (x @ x.mT + d * self.slope[:, None, None]).softmax(-1)", "torch.randn(2, 9, 8)", "self.slope = nn.Parameter(torch.rand(1))"),
    "rotated pairs": ("t = torch.arange(9)[:, None] * self.frequency\na, b = x.chunk(2, -1)\nreturn torch.cat([a * t.cos() - b * t.sin(), a * t.sin() + b * t.cos()], -1)", "torch.randn(2, 9, 8)", "self.register_buffer('frequency', torch.rand(4))"),
    "a mask of minus infinity": ("m = torch.full((9, 9), float('-inf')).triu(1)\nreturn (x @ x.mT + m).softmax(-1)", "torch.randn(2, 9, 8)", ""),
    "sums of a chunk": ("a = torch.cumsum(y, 1)\nd = (a[:, :, None] - a[:, None]).masked_fill(self.mask, float('-inf')).exp()\nreturn torch.einsum('bln,bsn,bls,bsp->blp', x, x, d, x[..., :3])", "torch.randn(3, 7, 5), -torch.rand(3, 7)",
                        "self.register_buffer('mask', torch.ones(7, 7).triu(1).bool())"),
    "attention without softmax": ("q, k = F.elu(x) + 1, F.elu(y) + 1\nreturn torch.einsum('bld,bsd,bse->ble', q, k, y) / (q @ k.sum(1)[..., None] + 1e-6)", "torch.randn(2, 9, 8), torch.randn(2, 9, 8)", ""),
    "two forms and a matrix": ("return torch.einsum('bi,oij,bj->bo', x, self.w, x)", "torch.randn(6, 10)", "self.w = nn.Parameter(torch.randn(4, 10, 10))"),
    # Images
    "more pixels": ("return F.pixel_shuffle(self.conv(x), 2).clamp(0, 1)", _IMAGE, "self.conv = nn.Conv2d(8, 12, 3, padding=1)"),
    "fewer pixels": ("return self.conv(F.pixel_unshuffle(x, 2)).relu()", _IMAGE, "self.conv = nn.Conv2d(32, 32, 1)"),
    "shuffled channels": ("a, b = x.chunk(2, 1)\nreturn F.channel_shuffle(torch.cat([a, b.relu()], 1), 2)", _IMAGE, ""),
    "a larger image beside": ("return torch.cat([F.interpolate(x, scale_factor=2, mode='bilinear', align_corners=True), F.interpolate(x, scale_factor=2)], 1).relu()", _IMAGE, ""),
    "a sharper image": ("return F.interpolate(x, size=(9, 8), mode='bicubic') + self.bias", _IMAGE, "self.bias = nn.Parameter(torch.randn(8, 1, 1))"),
    "a smaller image": ("return (F.interpolate(x, size=(3, 2), mode='bilinear', antialias=True) - 0.5) / self.scale", _IMAGE, "self.register_buffer('scale', torch.rand(8, 1, 1) + 0.5)"),
    "differences with a border": ("a = F.pad(x, (1, 1, 1, 1), mode='replicate')\nreturn a[:, :, 1:-1, 2:] - a[:, :, 1:-1, :-2], (a[:, :, 2:, 1:-1] - a[:, :, :-2, 1:-1]).abs()", _IMAGE, ""),
    "a blur with a mirror": ("return F.conv2d(F.pad(x, (1, 1, 1, 1), mode='reflect'), self.w, groups=8)", _IMAGE, "self.register_buffer('w', torch.rand(8, 1, 3, 3))"),
    "a circle of columns": ("return F.conv2d(F.pad(x, (1, 1, 0, 0), mode='circular'), self.w).relu()", _IMAGE, "self.w = nn.Parameter(torch.randn(32, 8, 3, 3))"),
    "a warped image": ("g = self.grid + y.movedim(1, -1) * 0.1\nreturn F.grid_sample(x, g, padding_mode='border', align_corners=True) - x", "torch.randn(2, 8, 6, 4), torch.randn(2, 2, 6, 4)", "self.register_buffer('grid', torch.rand(6, 4, 2) * 2 - 1)"),
    "a turned image": ("t = self.l(x.mean((2, 3))).view(2, 2, 3)\nreturn F.grid_sample(x, F.affine_grid(t, (2, 8, 6, 4), align_corners=False), align_corners=False)", _IMAGE, "self.l = nn.Linear(8, 6)"),
    "points of a volume": ("return F.grid_sample(self.v.expand(2, -1, -1, -1, -1), x[:, :, None, None], align_corners=True).flatten(2).relu()", "torch.rand(2, 9, 3) * 2 - 1", "self.v = nn.Parameter(torch.randn(1, 4, 3, 4, 5))"),
    "channels side by side": ("return self.c(x.to(memory_format=torch.channels_last)).relu().contiguous()", _IMAGE, "self.c = nn.Conv2d(8, 32, 3)"),
    # Numbers
    "means without gaps": ("a = torch.where(y, x, float('nan'))\nreturn a.nanmean(1), torch.nan_to_num(a, 1.0)", "torch.randn(6, 20), torch.rand(6, 20) > 0.2", ""),
    "clipped norms": ("n = torch.linalg.vector_norm(x, dim=1, keepdim=True)\nreturn x * (1.0 / n.clamp_min(1.0)), torch.linalg.vector_norm(x, 1, dim=(0, 1)), torch.linalg.vector_norm(x, float('inf'))", _X, ""),
    "places as numbers": ("return x + torch.linspace(-1, 1, 20) * torch.arange(6)[:, None] + torch.eye(6, 20) + torch.ones(20)", _X, ""),
    "a memory that is written": ("a = torch.zeros_like(x)\na.copy_(x.relu())\na[:, ::2] += self.b\nreturn a * 2", _X, "self.b = nn.Parameter(torch.randn(10))"),
    "features of a torus": ("t = x[..., None] * 2.0 ** torch.arange(4)\nreturn torch.cat([t.sin(), t.cos()], -1).flatten(1) @ self.w", "torch.rand(6, 5)", "self.w = nn.Parameter(torch.randn(40, 8))"),
}  # fmt: skip
