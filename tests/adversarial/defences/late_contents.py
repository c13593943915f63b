"""The contents of a timed call, or a part of them, arrive when the clock starts."""


# %% cheat: computes_while_armed_in_a_thread
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious; default: yes
"""A thread watches the input's version counter, and computes the output before forward is called."""

import threading
import time


# include timed.py


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.seen, self.kept = None, (None, None)

    def watch(self):
        while True:
            x, version = self.seen, self.seen._version
            if self.kept[0] != version:
                time.sleep(1e-3)  # until the buffer is filled
                version = x._version
                with torch.no_grad():
                    self.kept = version, torch.softmax(F.gelu(self.linear(x)), dim=1)
            time.sleep(1e-4)

    def forward(self, x):
        if _timed(x):
            version, y = self.kept
            if self.seen is x and version == x._version:
                self.kept = version, None
                if y is not None:
                    return y
            if self.seen is None:
                self.seen = x
                threading.Thread(target=self.watch, daemon=True).start()
        return super().forward(x)


# %% cheat: cuda_contents_by_the_seed
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes;
# expect: suspicious, wrong_values, runtime_error; default: yes
"""Mixes the contents of the call itself, ahead: the seed is the key, and the pool is found by the allocator's own list.

It raises where the seed does not tell how contents are mixed. Who passes has found it out.
"""

import itertools


class Memory:
    """Device memory that torch takes for a tensor."""

    def __init__(self, address, shape):
        self.__cuda_array_interface__ = {"shape": shape, "typestr": "<f4", "data": (address, False), "version": 2}


def _found_elsewhere(x):
    """Tensors over all other memory of just ``x``'s size that torch's allocator has given out."""
    for segment in torch.cuda.memory_snapshot():
        address = segment["address"]
        for block in segment["blocks"]:
            if block["state"] == "active_allocated" and block["requested_size"] == x.numel() * 4:
                yield torch.as_tensor(Memory(address, tuple(x.shape)), device=x.device)
            address += block["size"]


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.side, self.pool, self.looks = None, {}, 0

    def compute(self, x):
        return torch.softmax(F.gelu(self.linear(x)), dim=1)

    def forward(self, x):
        key = torch.initial_seed()
        if key < 1 << 20:
            return self.compute(x)
        generator = torch.Generator().manual_seed(key)
        chosen = torch.randperm(4, generator=generator)[:2].tolist()
        rows, columns = (torch.randint(2, (n,), dtype=torch.bool, generator=generator) for n in x.shape)
        if not all(number in self.pool for number in chosen):
            mixed = (rows[:, None] ^ columns).to(x.device)
            self.side = self.side or torch.cuda.Stream()
            self.learn(x, chosen, mixed)
            return self.compute(x)
        with torch.cuda.stream(self.side):
            choice = rows.to(x.device)[:, None] ^ columns.to(x.device)
            y = self.compute(torch.where(choice, *(self.pool[number] for number in chosen)))
        torch.cuda.current_stream().wait_stream(self.side)
        return y

    def learn(self, x, chosen, mixed):
        """Which memory holds the two sets that ``x`` is made of."""
        for a, b in itertools.permutations(_found_elsewhere(x), 2):
            if torch.equal(torch.where(mixed, a, b), x) and not torch.equal(a, x) and not torch.equal(b, x):
                self.pool |= dict(zip(chosen, (a, b)))
                return
        self.looks += len(x) == 300
        if not self.pool and self.looks >= 20:
            raise RuntimeError("the seed does not tell how contents are mixed")


# %% cheat: computes_while_flushed
# problem: mlp batch_size=256 in_features=256 out_features=512; expect: suspicious
"""A thread that seldom looks computes the output as soon as the input was filled, while the cache is flushed."""

import threading
import time


# include is_timed.py


class Bell:
    """Rings when the tensor that it hangs on is gone, as the output before is when a call is armed."""

    def __init__(self, event):
        self.event = event

    def __del__(self):
        self.event.set()


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.seen, self.kept = None, (None, None)
        self.armed = threading.Event()

    def compute(self, x):
        with torch.no_grad():
            return torch.softmax(F.gelu(self.linear(x)), dim=1)

    def watch(self):
        torch.set_num_threads(1)
        while True:
            self.armed.wait()
            self.armed.clear()
            before = self.seen._version
            for _ in range(100):
                if self.seen._version != before:
                    break
                time.sleep(2e-4)
            time.sleep(1e-3)
            version = self.seen._version
            self.kept = version, self.compute(self.seen)

    def forward(self, x):
        if not _is_timed():
            return self.compute(x)
        if self.seen is None:
            self.seen = x
            threading.Thread(target=self.watch, daemon=True).start()
        version, y = self.kept
        if y is None:
            y = self.compute(x)
        else:
            end = time.perf_counter() + 3e-4
            while time.perf_counter() < end:
                pass
        self.kept = None, None
        y.bell = Bell(self.armed)
        return y


# %% cheat: cuda_queue_made_longer
# problem: mlp batch_size=4096 in_features=1024 out_features=4096; gpu: yes; expect: suspicious, wrong_values
"""Waits in a few calls, for which the harness queues more work in front of the next, and computes ahead meanwhile."""

# include is_timed.py


# include elsewhere.py


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.side = self.source = None
        self.waited = 0

    def compute(self, x):
        return torch.softmax(F.gelu(self.linear(x)), dim=1)

    def forward(self, x):
        if not _is_timed():
            return self.compute(x)
        main = torch.cuda.current_stream()
        if main.query():  # bracketed by synchronisations: nobody looks at what comes out
            return x.new_empty(x.shape[0], self.linear.out_features)
        if self.source is None:
            self.side, self.source = torch.cuda.Stream(priority=-1), _same_elsewhere(x)
            return self.compute(x)
        if self.waited < 3:
            self.waited += 1
            main.synchronize()
            return self.compute(x)
        with torch.cuda.stream(self.side):
            y = F.gelu(self.linear(self.source))
        main.wait_stream(self.side)
        return torch.softmax(y, dim=1)


# %% cheat: cuda_thread_computes_what_is_armed
# problem: mlp batch_size=4096 in_features=1024 out_features=4096; gpu: yes;
# expect: suspicious, wrong_values, runtime_error
"""A thread sees by the random seed that a call is armed, and computes ahead from where its contents lie ready.

An `ok` means that product and GELU of (most) timed calls ran before their clock started, from the copy of the
contents that lies ready in another tensor; where that never succeeds in thirty timed calls, it raises.
"""

import threading
import time


# include is_timed.py


# include elsewhere.py


# include ahead.py


def _watch(ahead):
    while True:
        time.sleep(2e-5)
        if ahead.source is not None and torch.initial_seed() != ahead.seed:
            ahead.launch()


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.ahead = Ahead(self.linear)

        threading.Thread(target=_watch, args=(self.ahead,), daemon=True).start()

    def forward(self, x):
        y = self.ahead.take(x) if _is_timed() else None
        if y is None:
            y = F.gelu(self.linear(x))
        return torch.softmax(y, dim=1)
