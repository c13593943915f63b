// A GPU that is emulated on a CPU, to run whole kernels of sm_80 and sm_90a: each thread is a fiber.
//
// A fiber runs until it waits for others. Blocks run one after another, those of a cluster or a cooperative launch beside each
// other, threads in rising and falling order by turns. Errors that a GPU shows as wrong values now and then come out each time:
//
//     memory        shared memory begins as NaN; accesses beyond its end, and beyond tensors (emulated.py), meet a guard page
//     proxies       pages that TMA has filled are protected: the thread that touches one first owes a fence.proxy.async until TMA fills
//                   it again. The device itself uses another view of that memory
//     copies        (cp.async, TMA) poison their place when they are issued, and arrive as late as they may: cp.async at the wait,
//                   TMA, the newest first, when no thread can go on
//     products      (wgmma) poison their accumulators when they are issued, and read their operands, registers too, at the wait
//     launches      a kernel that is launched early begins before the one in front of it, which runs at griddepcontrol.wait
//     registers     (setmaxnreg) a block has no more of them than at its launch
//     barriers      too many arrivals, barriers that nobody made, parts of warps, warps that wait for each other at two places (of
//                   aligned instructions, compute-sanitizer's synccheck says so, too), and a deadlock end the launch with a message
//
// The tensor core adds the products of 16 of k and the sum at hand in fixed point, and truncates.
#include "cuda.h"
#include "cuda_bf16.h"
#include "cuda_fp16.h"

#include <algorithm>
#include <csetjmp>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <deque>
#include <dlfcn.h>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <sys/mman.h>
#include <tuple>
#include <ucontext.h>
#include <unistd.h>
#include <utility>
#include <vector>

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace {

constexpr int MULTIPROCESSORS = 5;  // few, so that persistent blocks take several tiles; not even, so that clusters do not fit exactly
constexpr int WARP = 32, WARPGROUP = 128, MOST_THREADS = 1024;
constexpr int WINDOW = 1 << 18;  // bytes of a block's shared memory: static from 0, dynamic up to the end
constexpr int REGISTERS = 65536;  // of a multiprocessor
constexpr int MOST_DYNAMIC = 232448, UNASKED_DYNAMIC = 49152;  // bytes
constexpr int RANK_SHIFT = 24;  // an address in a cluster: the block's rank + 1 above the address within it
constexpr int GUARDED = 25;  // bits behind the leading one of the largest addend; chosen by the errors that an H200 was measured to make
constexpr size_t STACK = 64 << 10, PAGE = 4096;
constexpr unsigned MOST_SECONDS = 300;  // of one launcher
constexpr int IDLE_ROUNDS = 100;  // of threads that only poll, before they count as blocked

struct Grid;
struct Block;

struct Copy { unsigned char* to; const void* from; int bytes, from_bytes; };

struct Thread {
    ucontext_t start;
    jmp_buf at;
    Block* block;
    int index;
    bool begun, done, polls;
    const char* waits_for;
    uint32_t waits_at;
    bool (*ready)(void*);
    void* condition;
    unsigned cluster_phase, fences;
    std::vector<Copy> open;
    std::deque<std::vector<Copy>> groups;
};

// Lanes of a warp or a warpgroup that have come to one function.
struct Meeting {
    const char* function = nullptr;
    std::vector<void*> operands;
    int arrived = 0;
    unsigned phase = 0;
};

struct NamedBarrier {
    int arrived = 0, expected = 0;
    unsigned phase = 0;
    const void* place = nullptr;  // the instruction at which threads wait
    int lanes[MOST_THREADS / WARP] = {};  // that have arrived, of each warp
};

// Products of a warpgroup on their way, and the accumulators that are theirs meanwhile.
struct Pipe {
    struct Issued {
        ptx::Products products;
        float* key;
        std::vector<const uint32_t*> rows;  // where each lane has its rows of a, if they are in registers
    };
    std::map<float*, std::vector<float>> held;  // the values, 64 rows of 128, by where the first lane has them
    std::map<float*, std::vector<float*>> places;  // and where all lanes do
    std::vector<Issued> open;
    std::deque<std::vector<Issued>> groups;
    bool fenced = false;
};

struct Block {
    Grid* grid;
    uint3 index;
    int rank, alive;
    unsigned char* memory;
    unsigned char* behind;  // the same memory as the device sees it
    int dynamic_begin, static_end;
    std::vector<std::pair<const void*, int>> declared;
    NamedBarrier barriers[16];
    std::vector<Meeting> warps, warpgroups;
    std::vector<Pipe> pipes;
    std::vector<int> alive_in_warp;
    int votes = 0, vote = 0;
    int registers = 0, free_registers = 0;  // of a thread at launch; given back and not taken (setmaxnreg)
    struct Page {
        bool filled = false;  // by TMA, and not touched since
        const Thread* touched_by = nullptr;
        unsigned fences = 0;  // of that thread before
    } pages[WINDOW / PAGE];
};

struct PendingBox {
    ptx::Box box;
    CUtensorMap map;  // the issuing thread may have ended when the copy arrives
    Block* block;
};

struct Grid {
    emulation::Launch launch;
    std::unique_ptr<const emulation::Call> call;
    const void* kernel;
    bool begun = false, done = false, released = false, wants_previous = false;
    std::vector<std::unique_ptr<Block>> blocks;  // those that run beside each other
    std::vector<PendingBox> boxes;
    int alive = 0, cluster_arrived = 0;
    unsigned cluster_phase = 0;
};

struct Resources {  // of a level: kernels that are launched early are run within one another
    unsigned char* windows = nullptr;  // as threads see them
    unsigned char* behind = nullptr;  // as the device does
    unsigned char* stacks = nullptr;
    size_t blocks = 0, threads = 0;
    std::vector<Thread> fibers;
};

std::vector<std::unique_ptr<Grid>> queue;
std::map<const void*, int> clusters, shared_allowed;
std::deque<Resources> levels;
size_t level = 0;
Thread* current;
jmp_buf* scheduler;
sigjmp_buf failed;
bool running = false;
int last_error = 0;
char message[1024];
unsigned changes = 0, launches = 0;

Grid& grid() { return *current->block->grid; }

void name_place(char* to, size_t size) {
    if (!current) return void(std::snprintf(to, size, "a launcher"));
    int number = 0;
    while (number < static_cast<int>(queue.size()) && queue[number].get() != current->block->grid) ++number;
    const uint3 b = current->block->index;
    std::snprintf(to, size, "launch %d of its launcher, block (%u, %u), thread %d", number + 1, b.x, b.y, current->index);
}

void switch_back() {
    if (!_setjmp(current->at)) _longjmp(*scheduler, 1);
}

// Lets others run until ready() is true.
template <typename Ready>
void wait_until(const char* what, const uint32_t at, Ready ready) {
    if (!ready()) {
        current->waits_for = what, current->waits_at = at;
        current->condition = &ready;
        current->ready = [](void* condition) { return (*static_cast<Ready*>(condition))(); };
        switch_back();
        current->ready = nullptr;
    }
    ++changes;
}

[[noreturn]] void begin_fiber() {
    current->block->grid->call->run();
    Block& block = *current->block;
    if (!current->open.empty()) emulation::fail("the thread ends with cp.async on its way");
    for (const auto& group : current->groups) if (!group.empty()) emulation::fail("the thread ends with cp.async on its way");
    current->done = true;
    --block.alive, --block.grid->alive, --block.alive_in_warp[current->index / WARP];
    ++changes;
    _longjmp(*scheduler, 1);
}

unsigned char* mapped(const size_t bytes) {
    void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) emulation::fail("no memory for %zu bytes", bytes);
    return static_cast<unsigned char*>(at);
}

// Two views of the same memory.
std::pair<unsigned char*, unsigned char*> mapped_twice(const size_t bytes) {
    const int file = memfd_create("shared memory", 0);
    void* views[2] = {MAP_FAILED, MAP_FAILED};
    if (file >= 0 && !ftruncate(file, static_cast<off_t>(bytes))) {
        for (auto& view : views) view = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    }
    if (file >= 0) close(file);
    if (views[0] == MAP_FAILED || views[1] == MAP_FAILED) emulation::fail("no memory for %zu bytes", bytes);
    return {static_cast<unsigned char*>(views[0]), static_cast<unsigned char*>(views[1])};
}

Resources& resources(const size_t blocks, const size_t threads) {
    while (levels.size() <= level) levels.emplace_back();
    Resources& own = levels[level];
    if (own.blocks < blocks) {
        std::tie(own.windows, own.behind) = mapped_twice(blocks * (WINDOW + PAGE));
        for (size_t i = 0; i < blocks; ++i) mprotect(own.windows + i * (WINDOW + PAGE) + WINDOW, PAGE, PROT_NONE);
        own.blocks = blocks;
    }
    if (own.threads < threads) {
        own.stacks = mapped(threads * STACK);
        own.fibers = std::vector<Thread>(threads);
        own.threads = threads;
    }
    return own;
}

void deliver(Grid& grid);
void run_up_to(int number);

[[noreturn]] void report_deadlock(const Resources& own, const size_t threads) {
    std::map<std::string, int> waiting;
    for (size_t i = 0; i < threads; ++i) {
        const Thread& t = own.fibers[i];
        char text[160];
        if (t.polls) std::snprintf(text, sizeof text, "poll memory");
        else std::snprintf(text, sizeof text, "wait for %s 0x%x", t.waits_for, t.waits_at);
        if (!t.done) ++waiting[text];
    }
    std::string all;
    for (const auto& [what, count] : waiting) all += (all.empty() ? "" : ", ") + std::to_string(count) + " threads " + what;
    emulation::fail("deadlock: %s", all.c_str());
}

// Runs blocks beside each other to their end.
void run_beside(Grid& grid, const std::vector<uint3>& indices) {
    const dim3 shape = grid.launch.block;
    const size_t threads = static_cast<size_t>(shape.x) * shape.y * shape.z, all = threads * indices.size();
    Resources& own = resources(indices.size(), all);
    const bool falling = (launches + indices[0].x + indices[0].y) % 2;
    grid.blocks.clear(), grid.boxes.clear();
    grid.alive = static_cast<int>(all), grid.cluster_arrived = 0;
    for (size_t b = 0; b < indices.size(); ++b) {
        auto block = std::make_unique<Block>();
        block->grid = &grid, block->index = indices[b], block->rank = static_cast<int>(b), block->alive = static_cast<int>(threads);
        block->memory = own.windows + b * (WINDOW + PAGE), block->behind = own.behind + b * (WINDOW + PAGE);
        mprotect(block->memory, WINDOW, PROT_READ | PROT_WRITE);
        block->static_end = 0, block->dynamic_begin = WINDOW - static_cast<int>(grid.launch.shared_bytes);
        block->registers = static_cast<int>(REGISTERS / threads) / 8 * 8;  // as many as a block alone may have
        const size_t warps = (threads + WARP - 1) / WARP;
        block->warps.resize(warps), block->warpgroups.resize((warps + 3) / 4), block->pipes.resize((warps + 3) / 4);
        for (auto& meeting : block->warps) meeting.operands.resize(WARP);
        for (auto& meeting : block->warpgroups) meeting.operands.resize(WARPGROUP);
        for (size_t w = 0; w < warps; ++w) block->alive_in_warp.push_back(static_cast<int>(std::min<size_t>(WARP, threads - w * WARP)));
        std::memset(block->behind, 0xff, WINDOW);
        for (size_t t = 0; t < threads; ++t) {
            Thread& fiber = own.fibers[b * threads + t];
            fiber.block = block.get(), fiber.index = static_cast<int>(t);
            fiber.begun = fiber.done = fiber.polls = false, fiber.ready = nullptr, fiber.fences = 0;
            fiber.open.clear(), fiber.groups.clear();
        }
        grid.blocks.push_back(std::move(block));
    }
    jmp_buf here;
    int idle = 0;
    while (grid.alive) {
        const unsigned before = changes;
        bool moved = false;
        for (size_t i = 0; i < all; ++i) {
            Thread& fiber = own.fibers[falling ? all - 1 - i : i];
            current = &fiber, scheduler = &here;
            if (fiber.done || (fiber.ready && !fiber.ready(fiber.condition))) continue;
            threadIdx = {static_cast<unsigned>(fiber.index) % shape.x, static_cast<unsigned>(fiber.index) / shape.x, 0};
            blockIdx = fiber.block->index, gridDim = grid.launch.grid, blockDim = shape;
            moved = moved || !fiber.polls;
            fiber.polls = false;
            if (_setjmp(here)) continue;
            if (fiber.begun) _longjmp(fiber.at, 1);
            fiber.begun = true;
            getcontext(&fiber.start);
            fiber.start.uc_stack.ss_sp = own.stacks + (&fiber - own.fibers.data()) * STACK;
            fiber.start.uc_stack.ss_size = STACK;
            fiber.start.uc_link = nullptr;
            makecontext(&fiber.start, reinterpret_cast<void (*)()>(begin_fiber), 0);
            setcontext(&fiber.start);
        }
        if (grid.wants_previous && !grid.released) {
            int number = 0;
            while (queue[number].get() != &grid) ++number;
            ++level;
            run_up_to(number - 1);
            --level;
            grid.released = true;
        } else if (moved || changes != before) {
            idle = 0;
        } else if (!grid.boxes.empty()) {
            deliver(grid);
        } else if (++idle > IDLE_ROUNDS) {
            report_deadlock(own, all);
        }
    }
    if (!grid.boxes.empty()) emulation::fail("a block ends while TMA copies to its shared memory are on their way");
    current = nullptr;
}

void run(Grid& grid) {
    grid.begun = true;
    ++launches;
    const dim3 shape = grid.launch.grid;
    std::vector<uint3> beside;
    const size_t most = grid.launch.together ? static_cast<size_t>(shape.x) * shape.y : grid.launch.cluster;
    for (unsigned z = 0; z < shape.z; ++z) {
        for (unsigned y = 0; y < shape.y; ++y) {
            for (unsigned x = 0; x < shape.x; ++x) {
                beside.push_back({x, y, z});
                if (beside.size() < most) continue;
                run_beside(grid, beside);
                beside.clear();
            }
        }
    }
    grid.blocks.clear();
    grid.done = true;
}

// Runs what is queued up to this launch, an early one before those in front of it.
void run_up_to(const int number) {
    if (number < 0) return;
    Grid& last = *queue[number];
    if (last.begun) return;
    last.released = !last.launch.early || number == 0;
    if (!last.launch.early) run_up_to(number - 1);
    run(last);
    run_up_to(number - 1);
}

// Where the instruction lies that a signal interrupted: a library, and the place in it.
void name_instruction(const void* context, char* to, size_t size) {
#if defined(__x86_64__)
    const auto at = static_cast<uintptr_t>(static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
    Dl_info found;
    if (dladdr(reinterpret_cast<void*>(at), &found)) std::snprintf(to, size, ", by %s+0x%zx", found.dli_fname, at - reinterpret_cast<uintptr_t>(found.dli_fbase));
#endif
}

bool touched(const void* address);

void on_signal(int signal, siginfo_t* info, void* context) {
    if (!running) {
        std::signal(signal, SIG_DFL);
        return;
    }
    if (signal == SIGSEGV && current && touched(info->si_addr)) return;
    const char* const what = signal == SIGALRM ? "no end is in sight" : signal == SIGSEGV || signal == SIGBUS ? "an access out of bounds" :
        "an access that is not aligned, or an index out of bounds";
    char place[160], instruction[512] = "";
    name_place(place, sizeof place);
    name_instruction(context, instruction, sizeof instruction);
    std::snprintf(message, sizeof message, "%s: %s, at %p%s", place, what, info->si_addr, instruction);
    siglongjmp(failed, 1);
}

void flush() {
    if (queue.empty()) return;
    if (!message[0]) {
        constexpr int SIGNALS[] = {SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGFPE, SIGALRM};
        static std::vector<char> room(1 << 16);
        stack_t own = {}, stack_before;
        own.ss_sp = room.data(), own.ss_size = room.size();
        sigaltstack(&own, &stack_before);
        struct sigaction action = {}, before[std::size(SIGNALS)];
        action.sa_sigaction = on_signal, action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        for (size_t i = 0; i < std::size(SIGNALS); ++i) sigaction(SIGNALS[i], &action, &before[i]);
        alarm(MOST_SECONDS);
        level = 0, running = true;
        if (!sigsetjmp(failed, 1)) run_up_to(static_cast<int>(queue.size()) - 1);
        running = false, current = nullptr;
        alarm(0);
        for (size_t i = 0; i < std::size(SIGNALS); ++i) sigaction(SIGNALS[i], &before[i], nullptr);
        sigaltstack(&stack_before, nullptr);
    }
    queue.clear();
}

// The memory behind an address of shared memory: of this block, or of one of its cluster.
unsigned char* shared_memory(Block& own, const uint32_t address, const int bytes) {
    const int rank = static_cast<int>(address >> RANK_SHIFT) - 1, at = address & ((1u << RANK_SHIFT) - 1);
    Block& block = rank < 0 ? own : *own.grid->blocks[rank];
    if (at + bytes > WINDOW || (at >= block.static_end && at < block.dynamic_begin)) emulation::fail("shared memory ends before 0x%x", at);
    if (!block.alive) emulation::fail("the block with the rank %d has ended, and its shared memory with it", block.rank);
    return block.behind + at;
}

// Lets a thread touch a page that TMA has filled. Whether that is what happened at this address.
bool touched(const void* address) {
    const auto* const place = static_cast<const unsigned char*>(address);
    for (auto& block : current->block->grid->blocks) {
        if (place < block->memory || place >= block->memory + WINDOW) continue;
        const size_t number = static_cast<size_t>(place - block->memory) / PAGE;
        Block::Page& page = block->pages[number];
        if (!page.filled) return false;
        page = {false, current, current->fences};
        return !mprotect(block->memory + number * PAGE, PAGE, PROT_READ | PROT_WRITE);
    }
    return false;
}

uint32_t at_rank(const uint32_t address, const int rank) { return (address & ((1u << RANK_SHIFT) - 1)) | static_cast<uint32_t>(rank + 1) << RANK_SHIFT; }

// Waits until all of these lanes that are alive have come here.
void meet(Meeting& meeting, const char* function, const int lane, const int expected, const std::function<int()>& alive, void* operand, void (*run)(void* const*)) {
    if (meeting.arrived && meeting.function != function) emulation::fail("lanes of one warp meet in %s and in %s", meeting.function, function);
    meeting.function = function;
    meeting.operands[lane] = operand;
    ++meeting.arrived;
    ++changes;
    const unsigned before = meeting.phase;
    wait_until(function, 0, [&] {
        if (meeting.phase != before) return true;
        if (meeting.arrived < (expected ? expected : alive())) return false;
        run(meeting.operands.data());
        std::fill(meeting.operands.begin(), meeting.operands.end(), nullptr);
        meeting.arrived = 0, ++meeting.phase;
        return true;
    });
}

void meet_warpgroup(const char* function, void* operand, void (*run)(void* const*)) {
    Meeting& meeting = current->block->warpgroups[current->index / WARPGROUP];
    meet(meeting, function, current->index % WARPGROUP, WARPGROUP, nullptr, operand, run);
}

void open(NamedBarrier& barrier, const Block& block, const int number) {
    for (size_t warp = 0; warp < block.alive_in_warp.size(); ++warp) {
        int& lanes = barrier.lanes[warp];
        if (lanes && lanes < block.alive_in_warp[warp]) emulation::fail("barrier %d has %d lanes of warp %d", number, lanes, static_cast<int>(warp));
        lanes = 0;
    }
    barrier.arrived = 0, barrier.place = nullptr, ++barrier.phase;
}

void wait_at(NamedBarrier& barrier, const int number, const void* place, const std::function<int()>& all) {
    if (barrier.place && barrier.place != place) emulation::fail("threads wait for each other at two places, at barrier %d", number);
    barrier.place = place;
    wait_until("barrier", number, [&, before = barrier.phase] {
        if (barrier.phase != before) return true;
        if (barrier.arrived < all()) return false;
        open(barrier, *current->block, number);
        return true;
    });
}

NamedBarrier& arrive_at(const int number, const int threads) {
    NamedBarrier& barrier = current->block->barriers[number];
    if (barrier.arrived && barrier.expected != threads) emulation::fail("barrier %d is for %d threads and for %d", number, barrier.expected, threads);
    barrier.expected = threads;
    ++barrier.arrived, ++barrier.lanes[current->index / WARP];
    ++changes;
    return barrier;
}

// mbarrier: a phase ends when nothing is pending and all bytes have come.
struct Mbarrier {
    static constexpr uint64_t MAGIC = 0x2a5;
    uint64_t magic : 10, phase : 1, expected : 12, pending : 12;
    int64_t bytes : 29;
};
static_assert(sizeof(Mbarrier) == 8, "as large as on a GPU");

Mbarrier& mbarrier(Block& block, const uint32_t address) {
    Mbarrier& found = *reinterpret_cast<Mbarrier*>(shared_memory(block, address, 8));
    if (address % 8) emulation::fail("mbarrier 0x%x is not aligned", address);
    if (found.magic != Mbarrier::MAGIC) emulation::fail("nobody has initialized mbarrier 0x%x", address);
    return found;
}

void settle(Mbarrier& barrier) {
    ++changes;
    if (barrier.pending || barrier.bytes) return;
    barrier.phase ^= 1, barrier.pending = barrier.expected;
}

void arrive(const uint32_t address, const int bytes = 0) {
    Mbarrier& barrier = mbarrier(*current->block, address);
    if (!barrier.pending) emulation::fail("more arrivals at mbarrier 0x%x than its %d", address, static_cast<int>(barrier.expected));
    barrier.bytes += bytes, --barrier.pending;
    settle(barrier);
}

// TMA

uint32_t swizzled(const uint32_t address, const int bytes) {
    const uint32_t groups = static_cast<uint32_t>(bytes) / 16 - 1;  // 7, 3, 1
    return bytes ? address ^ ((address >> 7 & groups) << 4) : address;
}

// Calls each(address in shared memory, memory or nullptr beyond the tensor) for 16 bytes after 16 bytes of a box.
template <typename Each>
int for_box(const ptx::Box& box, const CUtensorMap& map, Each each) {
    int done = 0;
    const auto take = [&](const int64_t (&at)[5]) {
        const int row = (map.windows ? map.channels : map.box[0]) * map.element_bytes;
        for (int byte = 0; byte < row; byte += 16, done += 16) {
            const unsigned char* from = map.memory;
            bool inside = true;
            int valid = 16;
            for (int i = 0; i < map.rank; ++i) {
                const int64_t place = i ? at[i] : at[0] + byte / map.element_bytes;
                inside = inside && place >= 0 && place < map.sizes[i];
                if (i == 0) valid = static_cast<int>(std::clamp<int64_t>((map.sizes[0] - place) * map.element_bytes, 0, 16));
                from += place * map.strides[i];
            }
            each(swizzled(box.to + done, map.swizzle_bytes), inside ? from : nullptr, valid);
        }
    };
    if (!map.windows) {
        int64_t at[5] = {box.at[0], 0, 0, box.at[3]};
        for (int z = 0; z < map.box[2]; ++z) {
            for (int y = 0; y < map.box[1]; ++y) {
                at[1] = box.at[1] + y, at[2] = box.at[2] + z;
                take(at);
            }
        }
        return done;
    }
    // Base pixels from the given one on, the first dimension first, then images.
    int base[3] = {box.at[1], box.at[2], box.at[3]};
    const int dimensions = map.rank - 2;
    int64_t image = box.at[map.rank - 1];
    for (int i = 0; i < dimensions; ++i) if (base[i] < map.lower[i] || base[i] > map.last[i]) emulation::fail("TMA begins beyond its base pixels: %d in dimension %d", base[i], i);
    for (int pixel = 0; pixel < map.pixels; ++pixel) {
        int64_t at[5] = {box.at[0]};
        for (int i = 0; i < dimensions; ++i) at[i + 1] = base[i] + box.tap[i];
        at[dimensions + 1] = image;
        take(at);
        int i = 0;
        for (; i < dimensions; ++i) {
            base[i] += map.steps[i + 1];
            if (base[i] <= map.last[i]) break;
            base[i] = map.lower[i];
        }
        if (i == dimensions) ++image;
    }
    return done;
}

// Lets the newest copy arrive.
void deliver(Grid& grid) {
    const PendingBox pending = grid.boxes.back();
    grid.boxes.pop_back();
    const unsigned blocks = pending.box.blocks ? pending.box.blocks : 1u << pending.block->rank;
    for (int rank = 0; rank < static_cast<int>(grid.blocks.size()); ++rank) {
        if (!(blocks >> rank & 1)) continue;
        Block& block = *grid.blocks[rank];
        size_t filled[WINDOW / PAGE] = {};
        const int bytes = for_box(pending.box, pending.map, [&](const uint32_t to, const unsigned char* from, const int valid) {
            unsigned char* const place = shared_memory(block, to, 16);
            filled[(place - block.behind) / PAGE] += 16;
            std::memset(place, 0, 16);
            if (from) std::memcpy(place, from, valid);
        });
        for (size_t i = 0; i < WINDOW / PAGE; ++i) {
            if (filled[i] < PAGE || block.pages[i].filled) continue;
            block.pages[i].filled = true;
            mprotect(block.memory + i * PAGE, PAGE, PROT_NONE);
        }
        Mbarrier& barrier = mbarrier(block, pending.box.barrier);
        barrier.bytes -= bytes;
        settle(barrier);
    }
}

// Tensor cores

double value_of(const uint16_t bits, const bool bfloat16) { return bfloat16 ? __bfloat162float({bits}) : __half2float(as_bits<__half>(bits)); }

// An operand of wgmma as its descriptor says (PTX ISA, "Shared Memory Matrix Layout"): rows by 16 of k in swizzled lines. Lines
// lie along k, 8 rows below each other and the next 8 a stride behind. Or each has one k of as many rows as it holds: 8 of k lie
// below each other and the next 8 a stride behind; the next rows are a leading offset behind.
struct Matrix {
    uint32_t start, leading, stride;
    int line_bytes;
    bool along_rows;

    Matrix(const uint64_t descriptor, const bool along_rows) : along_rows(along_rows) {
        const int mode = static_cast<int>(descriptor >> 62);
        if (!mode) emulation::fail("wgmma: operands without a swizzle are not emulated");
        if (descriptor >> 49 & 7) emulation::fail("wgmma: descriptors with a base offset are not emulated");
        const auto bytes = [&](const int bit) { return static_cast<uint32_t>(descriptor >> bit & 0x3fff) << 4; };
        start = bytes(0), leading = bytes(16), stride = bytes(32);
        line_bytes = mode == 1 ? 128 : mode == 2 ? 64 : 32;
    }

    uint32_t address(const int row, const int k) const {
        if (!along_rows) return swizzled(start + row / 8 * stride + row % 8 * line_bytes + 2 * k, line_bytes);
        const int of_line = line_bytes / 2;
        return swizzled(start + row / of_line * leading + row % of_line * 2 + k / 8 * stride + k % 8 * line_bytes, line_bytes);
    }
};

// Row r of an operand, 16 of k.
void read_row(Block& block, const Matrix& matrix, const int r, const bool bfloat16, double* to, const int apart) {
    for (int k = 0; k < 16; ++k) {
        uint16_t bits;
        std::memcpy(&bits, shared_memory(block, matrix.address(r, k), 2), 2);
        to[k * apart] = value_of(bits, bfloat16);
    }
}

// Sums of products over k, and what they are added to, for N columns: all are cut to multiples of 2^-GUARDED of the largest one's power
// of two before they are added, and the result to float32.
template <int K, int N>
void add_products(const double* a, const double (&b)[K][N], float* sums) {
    alignas(64) double products[K][N], largest[N], scale[N], total[N];
    for (int n = 0; n < N; ++n) largest[n] = std::fmax(std::fabs(static_cast<double>(sums[n])), 1e-200);
    for (int k = 0; k < K; ++k) {
        for (int n = 0; n < N; ++n) {
            products[k][n] = a[k] * b[k][n];
            largest[n] = std::fabs(products[k][n]) > largest[n] ? std::fabs(products[k][n]) : largest[n];
        }
    }
    for (int n = 0; n < N; ++n) {
        scale[n] = as_bits<double>((2046 + GUARDED - (as_bits<uint64_t>(largest[n]) >> 52)) << 52);
        total[n] = std::trunc(sums[n] * scale[n]);
    }
    for (int k = 0; k < K; ++k) {
        for (int n = 0; n < N; ++n) total[n] += std::trunc(products[k][n] * scale[n]);
    }
    for (int n = 0; n < N; ++n) sums[n] = static_cast<float>(as_bits<double>(as_bits<uint64_t>(total[n] / scale[n]) & ~0x1fffffffull));
}

// 64 rows of a, 16 of k: in shared memory, or in registers. Lane l of warp w has rows 16 w + l / 4 and 8 below, of each k
// 2 (l % 4) and the next one: the first row's word, the second row's, then theirs 8 of k on.
void read_rows(Block& block, const Pipe::Issued& issued, double (&to)[64][16]) {
    const ptx::Products& products = issued.products;
    if (issued.rows.empty()) {
        const Matrix matrix(products.a, products.turned_a);
        for (int m = 0; m < 64; ++m) read_row(block, matrix, m, products.bfloat16, to[m], 1);
        return;
    }
    for (int lane = 0; lane < WARPGROUP; ++lane) {
        for (int i = 0; i < 8; ++i) {
            const int row = lane / WARP * 16 + lane % WARP / 4 + i / 2 % 2 * 8, k = lane % 4 * 2 + i / 4 * 8 + i % 2;
            to[row][k] = value_of(static_cast<uint16_t>(issued.rows[lane][i / 2] >> i % 2 * 16), products.bfloat16);
        }
    }
}

// sums: 64 rows of `cols` columns, N of them at a time.
template <int N>
void multiply(Block& block, const Pipe::Issued& issued, float* sums, const int cols) {
    constexpr int M = 64, K = 16;
    alignas(64) static double a[M][K], b[K][N];
    const ptx::Products& products = issued.products;
    const Matrix of_b(products.b, products.turned_b);
    read_rows(block, issued, a);
    if (!products.accumulate) std::fill(sums, sums + M * cols, 0.0f);
    for (int first = 0; first < cols; first += N) {
        for (int n = 0; n < N; ++n) read_row(block, of_b, first + n, products.bfloat16, &b[0][n], N);
        for (int m = 0; m < M; ++m) add_products<K, N>(a[m], b, sums + m * cols + first);
    }
}

// The place of accumulator i of a lane of a warpgroup: lane l of warp w has rows 16 w + l / 4 and 8 below, of each group of 8 columns
// 2 (l % 4) and the next one.
int place_of(const int lane, const int i, const int cols) {
    const int row = lane / WARP * 16 + lane % WARP / 4 + i % 4 / 2 * 8, col = i / 4 * 8 + lane % 4 * 2 + i % 2;
    return row * cols + col;
}

struct ProductsOperand { const ptx::Products* products; Thread* thread; };

void issue(void* const* all) {
    const ProductsOperand& first = *static_cast<ProductsOperand*>(all[0]);
    Pipe& pipe = first.thread->block->pipes[first.thread->index / WARPGROUP];
    const ptx::Products products = *first.products;
    float* const key = products.sums;
    if (!pipe.fenced) emulation::fail("wgmma without wgmma.fence behind the last wait");
    if (!pipe.held.count(key)) {
        auto& held = pipe.held[key];
        auto& places = pipe.places[key];
        held.resize(64 * products.cols);
        for (int lane = 0; lane < WARPGROUP; ++lane) {
            float* const own = static_cast<ProductsOperand*>(all[lane])->products->sums;
            places.push_back(own);
            for (int i = 0; i < products.cols / 2; ++i) held[place_of(lane, i, products.cols)] = std::exchange(own[i], NAN);
        }
    }
    std::vector<const uint32_t*> rows;
    for (int lane = 0; lane < WARPGROUP; ++lane) {
        const ptx::Products& own = *static_cast<ProductsOperand*>(all[lane])->products;
        if (own.rows) rows.push_back(own.rows);
        if (own.a != products.a || own.b != products.b || own.accumulate != products.accumulate) emulation::fail("wgmma: lanes differ in their operands");
        if (own.sums != pipe.places[key][lane]) emulation::fail("wgmma: lanes differ in their accumulators");
    }
    pipe.open.push_back({products, key, std::move(rows)});
}

void finish_products(Block& block, Pipe& pipe, const size_t pending) {
    for (; pipe.groups.size() > pending; pipe.groups.pop_front()) {
        for (const Pipe::Issued& issued : pipe.groups.front()) {
            const int cols = issued.products.cols;
            (cols % 128 == 0 ? multiply<128> : multiply<8>)(block, issued, pipe.held[issued.key].data(), cols);
        }
    }
    for (auto held = pipe.held.begin(); held != pipe.held.end();) {
        bool used = false;
        for (const auto& issued : pipe.open) used = used || issued.key == held->first;
        for (const auto& group : pipe.groups) for (const auto& issued : group) used = used || issued.key == held->first;
        if (used) {
            ++held;
            continue;
        }
        const auto& places = pipe.places[held->first];
        for (int lane = 0; lane < WARPGROUP; ++lane) {
            const int cols = static_cast<int>(held->second.size()) / 64;
            for (int i = 0; i < cols / 2; ++i) places[lane][i] = held->second[place_of(lane, i, cols)];
        }
        pipe.places.erase(held->first);
        held = pipe.held.erase(held);
    }
    pipe.fenced = false;
}

struct PipeOperand { Block* block; Pipe* pipe; int pending; };

void with_pipe(const char* function, const int pending, void (*run)(void* const*)) {
    PipeOperand operand = {current->block, &current->block->pipes[current->index / WARPGROUP], pending};
    meet_warpgroup(function, &operand, run);
}

void finish_copies(Thread& thread, const size_t pending) {
    for (; thread.groups.size() > pending; thread.groups.pop_front()) {
        for (const Copy& copy : thread.groups.front()) {
            std::memset(copy.to, 0, copy.bytes);
            std::memcpy(copy.to, copy.from, copy.from_bytes);
        }
    }
}

}  // namespace

namespace emulation {

void fail(const char* format, ...) {
    if (message[0]) siglongjmp(failed, 1);
    char place[160];
    name_place(place, sizeof place);
    const int length = std::snprintf(message, sizeof message, "%s: ", place);
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(message + length, sizeof message - length, format, arguments);
    va_end(arguments);
    siglongjmp(failed, 1);
}

int enqueue(const void* kernel, const Launch& launch, const Call* call) {
    auto grid = std::make_unique<Grid>();
    grid->launch = launch, grid->kernel = kernel;
    grid->call.reset(call);
    if (clusters.count(kernel)) grid->launch.cluster = clusters[kernel];
    const auto allowed = shared_allowed.find(kernel);
    const long long threads = static_cast<long long>(launch.block.x) * launch.block.y * launch.block.z;
    const long long blocks = static_cast<long long>(launch.grid.x) * launch.grid.y * launch.grid.z;
    const bool fits = launch.shared_bytes <= (allowed == shared_allowed.end() ? UNASKED_DYNAMIC : allowed->second);
    if (!fits || threads < 1 || threads > MOST_THREADS || blocks < 1 || launch.grid.x % grid->launch.cluster || (launch.together && blocks > MULTIPROCESSORS * emulation::RESIDENT)) {
        return last_error = cudaErrorInvalidConfiguration;
    }
    queue.push_back(std::move(grid));
    return cudaSuccess;
}

void declare_cluster(const void* kernel, const int blocks) { clusters[kernel] = blocks; }
void allow_shared(const void* kernel, const int bytes) { if (bytes <= MOST_DYNAMIC) shared_allowed[kernel] = bytes; }

unsigned char* dynamic_shared(const int alignment) {
    Block& block = *current->block;
    block.dynamic_begin = (WINDOW - static_cast<int>(grid().launch.shared_bytes)) / alignment * alignment;
    return block.memory + block.dynamic_begin;
}

void* static_shared(const void* declaration, const int bytes, const int alignment) {
    Block& block = *current->block;
    for (const auto& [known, at] : block.declared) if (known == declaration) return block.memory + at;
    const int at = (block.static_end + alignment - 1) / alignment * alignment;
    block.static_end = at + bytes;
    if (block.static_end > std::min(UNASKED_DYNAMIC, block.dynamic_begin)) fail("no room for %d bytes of static shared memory", block.static_end);
    block.declared.emplace_back(declaration, at);
    return block.memory + at;
}

int lane() { return current->index % WARP; }
void changed() { ++changes; }

void meet_warp(const char* function, void* operand, void (*run)(void* const*)) {
    Block& block = *current->block;
    const int warp = current->index / WARP;
    meet(block.warps[warp], function, lane(), 0, [&] { return block.alive_in_warp[warp]; }, operand, run);
}

void synchronize_block() {
    Block& block = *current->block;
    wait_at(arrive_at(0, 0), 0, __builtin_return_address(0), [&] { return block.alive; });
}

Launcher::~Launcher() { flush(); }

}  // namespace emulation

int __syncthreads_or(const int value) {
    Block& block = *current->block;
    block.votes |= value != 0;
    emulation::synchronize_block();
    block.vote = block.votes;
    emulation::synchronize_block();
    block.votes = 0;
    const int found = block.vote;
    emulation::synchronize_block();
    return found;
}

size_t __cvta_generic_to_shared(const void* p) {
    const auto at = static_cast<const unsigned char*>(p) - current->block->memory;
    if (at < 0 || at > WINDOW) emulation::fail("no address of this block's shared memory");
    return at;
}

int cudaGetLastError() { return std::exchange(last_error, 0); }
int cudaGetDevice(int* device) { return *device = 0; }
int cudaDeviceGetAttribute(int* value, int, int) { return *value = MULTIPROCESSORS, cudaSuccess; }
int cudaMemsetAsync(void* memory, const int value, const size_t bytes, cudaStream_t) {
    flush();
    std::memset(memory, value, bytes);
    return cudaSuccess;
}
int cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, int, cudaDriverEntryPointQueryResult* status) {
    *status = cudaDriverEntryPointSuccess;
    *function = !std::strcmp(name, "cuTensorMapEncodeTiled") ? reinterpret_cast<void*>(cuTensorMapEncodeTiled) : reinterpret_cast<void*>(cuTensorMapEncodeIm2col);
    return cudaSuccess;
}

static CUresult encode(
    CUtensorMap* map, const CUtensorMapDataType type, const int rank, void* memory, const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* steps, const int inner,
    const CUtensorMapSwizzle swizzle
) {
    const int bytes = type == CU_TENSOR_MAP_DATA_TYPE_FLOAT32 ? 4 : 2;
    *map = {};
    map->memory = static_cast<const unsigned char*>(memory), map->rank = rank, map->element_bytes = bytes, map->swizzle_bytes = swizzle ? 16 << swizzle : 0;
    bool good = reinterpret_cast<uintptr_t>(memory) % 16 == 0 && rank >= 3 && rank <= 5 && inner * bytes % 16 == 0 && (!swizzle || inner * bytes <= map->swizzle_bytes);
    for (int i = 0; i < rank; ++i) {
        map->sizes[i] = static_cast<int64_t>(sizes[i]), map->strides[i] = i ? static_cast<int64_t>(strides[i - 1]) : bytes;
        map->steps[i] = static_cast<int>(steps[i]);
        good = good && sizes[i] >= 1 && sizes[i] <= 1ull << 32 && steps[i] >= 1 && steps[i] <= 8 && (i == 0 || (strides[i - 1] % 16 == 0 && strides[i - 1] < 1ull << 40));
    }
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuTensorMapEncodeTiled(
    CUtensorMap* map, const CUtensorMapDataType type, const cuuint32_t rank, void* memory, const cuuint64_t* sizes, const cuuint64_t* strides,
    const cuuint32_t* box, const cuuint32_t* steps, CUtensorMapInterleave, const CUtensorMapSwizzle swizzle, CUtensorMapL2promotion,
    CUtensorMapFloatOOBfill
) {
    if (encode(map, type, static_cast<int>(rank), memory, sizes, strides, steps, static_cast<int>(box[0]), swizzle) || rank > 4 || (rank == 4 && box[3] != 1)) return CUDA_ERROR_INVALID_VALUE;
    for (cuuint32_t i = 0; i < rank; ++i) {
        map->box[i] = static_cast<int>(box[i]);
        if (box[i] < 1 || box[i] > 256) return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult cuTensorMapEncodeIm2col(
    CUtensorMap* map, const CUtensorMapDataType type, const cuuint32_t rank, void* memory, const cuuint64_t* sizes, const cuuint64_t* strides,
    const int* lower, const int* upper, const cuuint32_t channels, const cuuint32_t pixels, const cuuint32_t* steps, CUtensorMapInterleave,
    const CUtensorMapSwizzle swizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill
) {
    constexpr int CORNER[] = {1 << 15, 1 << 7, 1 << 4};  // by dimensions of an image: corners lie within -CORNER and CORNER - 1
    if (encode(map, type, static_cast<int>(rank), memory, sizes, strides, steps, static_cast<int>(channels), swizzle)) return CUDA_ERROR_INVALID_VALUE;
    map->windows = true, map->channels = static_cast<int>(channels), map->pixels = static_cast<int>(pixels);
    bool good = channels <= 256 && pixels <= 1024;
    for (int i = 0; i < static_cast<int>(rank) - 2; ++i) {
        map->lower[i] = lower[i], map->last[i] = static_cast<int>(map->sizes[i + 1]) - 1 + upper[i];
        const int corner = CORNER[rank - 3];
        good = good && lower[i] >= -corner && lower[i] < corner && upper[i] >= -corner && upper[i] < corner;
    }
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

namespace ptx {

void products(const Taken& taken, const int cols, const bool bfloat16) {
    const int sums = cols / 2;  // of a thread
    const bool in_registers = taken.others == 9;  // a: four words in place of a descriptor, and no choice to turn it
    const int b = in_registers ? 4 : 1;
    if (taken.floats != sums) fail("wgmma: not as many accumulators as it has columns for");
    for (int i = 1; i < sums; ++i) if (taken.sums[i] != taken.sums[0] + i) fail("wgmma: the accumulators are not in the order of an array");
    const uint32_t* const rows = in_registers ? static_cast<const uint32_t*>(taken.places[0]) : nullptr;
    if (rows) for (int i = 1; i < 4; ++i) if (taken.places[i] != rows + i) fail("wgmma: the rows in registers are not in the order of an array");
    const uint64_t* const rest = taken.rest;
    if (rest[b + 2] != 1 || rest[b + 3] != 1) fail("wgmma: scaled operands are not emulated");
    const bool turned_a = !in_registers && rest[b + 4], turned_b = rest[in_registers ? b + 4 : b + 5];
    const Products products = {in_registers ? 0 : rest[0], rest[b], cols, rest[b + 1] != 0, bfloat16, turned_a, turned_b, taken.sums[0], rows};
    ProductsOperand operand = {&products, current};
    meet_warpgroup("wgmma", &operand, issue);
}

void wgmma_fence_sync_aligned() {
    with_pipe("wgmma.fence", 0, [](void* const* all) { static_cast<PipeOperand*>(all[0])->pipe->fenced = true; });
}

void wgmma_commit_group_sync_aligned() {
    with_pipe("wgmma.commit_group", 0, [](void* const* all) {
        Pipe& pipe = *static_cast<PipeOperand*>(all[0])->pipe;
        pipe.groups.push_back(std::move(pipe.open));
        pipe.open.clear();
    });
}

void wgmma_wait_group_sync_aligned(const int pending) {
    with_pipe("wgmma.wait_group", pending, [](void* const* all) {
        const PipeOperand& operand = *static_cast<PipeOperand*>(all[0]);
        finish_products(*operand.block, *operand.pipe, operand.pending);
    });
}

void multiply_fragments(Fragments& fragments) {
    emulation::meet_warp("mma", &fragments, [](void* const* all) {
        const auto of = [&](const int lane) -> Fragments& { return *static_cast<Fragments*>(all[lane]); };
        const Kind kind = of(0).kind;
        const int in_word = kind == TF32 ? 1 : 2;  // elements; a tensor core ignores the last bits of TF32
        const auto element = [&](const uint32_t word, const int k) -> double {
            return kind == TF32 ? as_bits<float>(word & 0xffffe000) : value_of(static_cast<uint16_t>(word >> k % 2 * 16), kind == BFLOAT16);
        };
        double a[16][16] = {}, b[16][8] = {};
        for (int k = 0; k < 8 * in_word; ++k) {
            const int half = k / (4 * in_word), lane = k / in_word % 4;
            for (int m = 0; m < 16; ++m) a[m][k] = element(of(m % 8 * 4 + lane).a[half * 2 + m / 8], k);
            for (int n = 0; n < 8; ++n) b[k][n] = element(of(n * 4 + lane).b[half], k);
        }
        for (int m = 0; m < 16; ++m) {
            float sums[8];
            for (int n = 0; n < 8; ++n) sums[n] = of(m % 8 * 4 + n / 2).sums[m / 8 * 2 + n % 2];
            add_products<16, 8>(a[m], b, sums);
            for (int n = 0; n < 8; ++n) of(m % 8 * 4 + n / 2).sums[m / 8 * 2 + n % 2] = sums[n];
        }
    });
}

void load_matrices(uint32_t (&found)[4], const uint32_t address, const bool transposed) {
    struct Operand { uint32_t address; bool transposed; Block* block; uint32_t found[4]; } own = {address, transposed, current->block, {}};
    emulation::meet_warp("ldmatrix", &own, [](void* const* all) {
        for (int lane = 0; lane < WARP; ++lane) {
            Operand& own = *static_cast<Operand*>(all[lane]);
            for (int i = 0; i < 4; ++i) {
                for (int j = 0; j < 2; ++j) {
                    const int first = lane / 4, second = lane % 4 * 2 + j;
                    const uint32_t row = static_cast<Operand*>(all[8 * i + (own.transposed ? second : first)])->address;
                    if (row % 16) emulation::fail("ldmatrix: address 0x%x is not aligned", row);
                    const unsigned char* const from = shared_memory(*own.block, row, 16) + 2 * (own.transposed ? first : second);
                    std::memcpy(reinterpret_cast<unsigned char*>(&own.found[i]) + 2 * j, from, 2);
                }
            }
        }
    });
    std::copy_n(own.found, 4, found);
}

void copy_async(const uint32_t to, const void* from, const int bytes, const int from_bytes) {
    if (to % bytes || reinterpret_cast<uintptr_t>(from) % bytes) fail("cp.async: addresses are no multiples of %d", bytes);
    unsigned char* const place = shared_memory(*current->block, to, bytes);
    std::memset(place, 0xff, bytes);
    current->open.push_back({place, from, bytes, from_bytes});
}

void cp_async_commit_group() {
    current->groups.push_back(std::move(current->open));
    current->open.clear();
}

void cp_async_wait_group(const int pending) { finish_copies(*current, pending); }

void copy_box(const Box& box) {
    Grid& own = grid();
    const unsigned blocks = box.blocks ? box.blocks : 1u << current->block->rank;
    if (box.to % 128) fail("TMA: address 0x%x is not aligned", box.to);
    for (int rank = 0; rank < static_cast<int>(own.blocks.size()); ++rank) {
        if (!(blocks >> rank & 1)) continue;
        Block& block = *own.blocks[rank];
        for_box(box, *box.map, [&](const uint32_t to, const unsigned char*, int) {
            unsigned char* const place = shared_memory(block, to, 16);
            Block::Page& page = block.pages[(place - block.behind) / PAGE];
            if (page.touched_by && page.touched_by->fences == page.fences) fail("TMA fills 0x%x again, and a thread that touched it has made no fence.proxy.async since", to);
            page.touched_by = nullptr;
            std::memset(place, 0xff, 16);
        });
    }
    own.boxes.push_back({box, *box.map, current->block});
}

void fence_proxy_async_shared_cta() { ++current->fences; }

void setmaxnreg_dec_sync_aligned_u32(const int count) { current->block->free_registers += current->block->registers - count; }

void setmaxnreg_inc_sync_aligned_u32(const int count) {
    Block& block = *current->block;
    const int more = count - block.registers;
    wait_until("setmaxnreg", 0, [&] { return block.free_registers >= more; });
    block.free_registers -= more;
}

void mbarrier_init_shared_cta_b64(const uint32_t barrier, const int arrivals) {
    Mbarrier made = {Mbarrier::MAGIC, 0, static_cast<uint64_t>(arrivals), static_cast<uint64_t>(arrivals), 0};
    std::memcpy(shared_memory(*current->block, barrier, 8), &made, 8);
}

void mbarrier_arrive_expect_tx_shared_cta_b64(const uint32_t barrier, const int bytes) { arrive(barrier, bytes); }
void mbarrier_arrive_shared_cta_b64(const uint32_t barrier) { arrive(barrier); }
void mbarrier_arrive_shared_cluster_b64(const uint32_t barrier) { arrive(barrier); }

void mbarrier_try_wait_parity_shared_cta_b64(uint32_t& done, const uint32_t barrier, const uint32_t parity) {
    Mbarrier& found = mbarrier(*current->block, barrier);
    wait_until("mbarrier", barrier, [&] { return found.phase != (parity & 1); });
    done = 1;
}

void bar_sync(const int number, const int threads) {
    wait_at(arrive_at(number, threads), number, __builtin_return_address(0), [threads] { return threads; });
}

void bar_arrive(const int number, const int threads) {
    NamedBarrier& barrier = arrive_at(number, threads);
    if (barrier.arrived == threads) open(barrier, *current->block, number);
}

void barrier_cluster_arrive_release_aligned() {
    current->cluster_phase = grid().cluster_phase;
    ++grid().cluster_arrived;
    ++changes;
}

void barrier_cluster_arrive_relaxed_aligned() { barrier_cluster_arrive_release_aligned(); }

void barrier_cluster_wait_acquire_aligned() {
    Grid& own = grid();
    const unsigned before = current->cluster_phase;
    wait_until("the cluster's barrier", 0, [&] {
        if (own.cluster_phase != before) return true;
        if (own.cluster_arrived < own.alive) return false;
        own.cluster_arrived = 0, ++own.cluster_phase;
        return true;
    });
}

uint32_t cluster_ctarank() { return current->block->rank; }
void mapa_shared_cluster_u32(uint32_t& remote, const uint32_t address, const int block) { remote = at_rank(address, block); }
void mapa_u64(uint64_t& remote, const void* own, const int block) {
    remote = reinterpret_cast<uint64_t>(shared_memory(*current->block, at_rank(__cvta_generic_to_shared(own), block), 1));
}
void st_shared_cluster_v4_f32(const uint32_t address, const float x, const float y, const float z, const float w) {
    const float stored[4] = {x, y, z, w};
    std::memcpy(shared_memory(*current->block, address, 16), stored, 16);
}

void griddepcontrol_wait() {
    Grid& own = grid();
    wait_until("the kernel in front", 0, [&] { return own.wants_previous = true, own.released; });
}

void poll() {
    current->polls = true;
    switch_back();
}

}  // namespace ptx

// What went wrong since the last call, or an empty text.
extern "C" const char* emulation_message() {
    static char found[sizeof message];
    std::memcpy(found, message, sizeof message);
    message[0] = 0;
    return found;
}
