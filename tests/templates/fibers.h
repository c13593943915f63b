// A CPU in the place of a GPU, for the text of kernels: each thread of a block is a fiber, and blocks run one after another.
//
// A fiber runs until it waits for others at a barrier, of its block or of its warp. Functions of a whole warp (shuffles,
// ldmatrix, mma.sync) post their operands, wait for the other lanes, and read what those posted. Copies in the
// background are done at once. Shared memory begins as NaN.

#include <algorithm>
#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <ucontext.h>
#include <vector>

#define __device__
#define __host__
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __restrict__
#define __constant__ static const
#define __shared__ static
#define __launch_bounds__(...)
using std::max;
using std::min;

struct alignas(8) int2 { int x, y; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct dim3 {
    unsigned x;
    dim3(unsigned x = 1) : x(x) {}
};
using __half = _Float16;

template <typename To, typename From>
static To bits(From from) {
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

static int2 make_int2(int x, int y) { return {x, y}; }
static __half __float2half_rn(float x) { return static_cast<__half>(x); }
static float __half2float(__half x) { return static_cast<float>(x); }
struct __nv_bfloat16 { uint16_t bits; };
static __nv_bfloat16 __float2bfloat16_rn(float x) {
    const uint32_t all = bits<uint32_t>(x);
    return {static_cast<uint16_t>(x != x ? all >> 16 | 0x40 : (all + 0x7fff + (all >> 16 & 1)) >> 16)};
}
static float __bfloat162float(__nv_bfloat16 x) { return bits<float>(static_cast<uint32_t>(x.bits) << 16); }
static float to_float(__half x) { return x; }
static float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
static float __int_as_float(int x) { return bits<float>(x); }
static float __uint_as_float(unsigned x) { return bits<float>(x); }
static unsigned __float_as_uint(float x) { return bits<unsigned>(x); }
static int __popc(unsigned x) { return __builtin_popcount(x); }
static float __fdividef(float a, float b) { return a / b; }

// Fibers

constexpr int MOST_THREADS = 1024, STACK = 256 << 10;
static dim3 threadIdx, blockIdx, gridDim;
static struct { ucontext_t context; bool done; unsigned turn; } fibers[MOST_THREADS];
static ucontext_t scheduler;
static int current, alive, alive_in_warp[32];  // the running fiber; fibers that have not returned
static std::function<void()> kernel_of_thread;
alignas(1024) static unsigned char shared_memory[1 << 18];

static void yield() { swapcontext(&fibers[current].context, &scheduler); }

struct Barrier {
    int arrived = 0;
    unsigned phase = 0;

    void wait(const int& all) {
        const unsigned before = phase;
        for (++arrived; phase == before; yield()) {
            if (arrived < all) continue;
            arrived = 0, ++phase;
            break;
        }
    }
};
static Barrier of_block, of_warp[32];

static void __syncthreads() { of_block.wait(alive); }
static void __syncwarp() { of_warp[current / 32].wait(alive_in_warp[current / 32]); }

static void begin_fiber() {
    kernel_of_thread();
    fibers[current].done = true;
    --alive, --alive_in_warp[current / 32];
    for (;;) yield();
}

static void run_block(const int threads) {
    static std::vector<char> stacks(MOST_THREADS * STACK);
    alive = threads, of_block = {};
    for (int warp = 0; warp < 32; ++warp) of_warp[warp] = {}, alive_in_warp[warp] = max(0, min(32, threads - 32 * warp));
    for (int t = 0; t < threads; ++t) {
        getcontext(&fibers[t].context);
        fibers[t].done = false, fibers[t].turn = 0;
        fibers[t].context.uc_stack.ss_sp = stacks.data() + t * STACK;
        fibers[t].context.uc_stack.ss_size = STACK;
        makecontext(&fibers[t].context, begin_fiber, 0);
    }
    while (alive) {
        for (int t = 0; t < threads; ++t) {
            if (fibers[t].done) continue;
            current = threadIdx.x = t;
            swapcontext(&scheduler, &fibers[t].context);
        }
    }
}

// Launches

using cudaStream_t = void*;
enum { cudaErrorInvalidConfiguration = 9, cudaFuncAttributeMaxDynamicSharedMemorySize = 8, cudaDevAttrMultiProcessorCount = 16 };
struct Shape { dim3 grid; int threads, shared_bytes = 0; };

template <typename Kernel>
static int cudaFuncSetAttribute(Kernel, int, int bytes) { return bytes > static_cast<int>(sizeof shared_memory); }
static int cudaGetDevice(int* device) { return *device = 0; }
static int cudaDeviceGetAttribute(int* value, int, int) { return *value = 1, 0; }
static int cudaGetLastError() { return 0; }

template <typename... Parameters, typename... Arguments>
static int launch_early(void (*kernel)(Parameters...), const Shape& shape, cudaStream_t, Arguments... arguments) {
    gridDim = shape.grid;
    kernel_of_thread = [&] { kernel(Parameters(arguments)...); };
    for (blockIdx.x = 0; blockIdx.x < shape.grid.x; ++blockIdx.x) {
        std::memset(shared_memory, 0xff, sizeof shared_memory);
        run_block(shape.threads);
    }
    return 0;
}
static void start_next() {}
static void wait_for_previous() {}

// Functions of a warp

struct Posted { uint64_t words[3]; };

// What all lanes of the warp posted. There are two rooms, so that a lane may post again while another still reads.
static const Posted* post(const Posted& own) {
    static Posted rooms[2][MOST_THREADS];
    Posted* const room = rooms[fibers[current].turn++ % 2];
    room[current] = own;
    __syncwarp();
    return room + current / 32 * 32;
}

static float __shfl_xor_sync(unsigned, float value, int mask) {
    return bits<float>(static_cast<unsigned>(post({{bits<unsigned>(value)}})[current % 32 ^ mask].words[0]));
}

static unsigned __reduce_max_sync(unsigned, unsigned value) {
    const Posted* const all = post({{value}});
    unsigned largest = 0;
    for (int lane = 0; lane < 32; ++lane) largest = max(largest, static_cast<unsigned>(all[lane].words[0]));
    return largest;
}

static uint32_t shared_address(const void* p) { return static_cast<const unsigned char*>(p) - shared_memory; }
static void copy_async(uint32_t to, const void* from) { std::memcpy(shared_memory + to, from, 16); }
static void copy_commit() {}
template <int PENDING>
static void copy_wait() {}
template <int BYTES>
static void copy_filled(uint32_t to, const void* from, bool inside) {
    if (inside) std::memcpy(shared_memory + to, from, BYTES);
    else std::memset(shared_memory + to, 0, BYTES);
}

static void load_matrices(uint32_t (&r)[4], uint32_t address) {
    const Posted* const all = post({{address}});
    const int lane = current % 32;
    for (int i = 0; i < 4; ++i) std::memcpy(&r[i], shared_memory + all[8 * i + lane / 4].words[0] + 4 * (lane % 4), 4);
}

// m16n8k16. Lane l has of a: rows l / 4 and l / 4 + 8, of b: row l / 4; of both k = 2 (l % 4), the next one, and those 8 behind.
template <bool FIRST, typename T>
static void mma_of(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    const auto pair = [](uint32_t low, uint32_t high) { return low | static_cast<uint64_t>(high) << 32; };
    const Posted* const all = post({{pair(a[0], a[1]), pair(a[2], a[3]), pair(b0, b1)}});
    const auto half = [](uint32_t two, int k) { return to_float(bits<T>(static_cast<uint16_t>(k % 2 ? two >> 16 : two))); };
    const int lane = current % 32;
    for (int i = 0; i < 4; ++i) {
        float sum = FIRST ? 0.0f : d[i];
        for (int k = 0; k < 16; ++k) {
            const int in_group = k % 8 / 2, col = lane % 4 * 2 + i % 2;
            const uint64_t of_a = all[lane / 4 * 4 + in_group].words[k / 8], of_b = all[col * 4 + in_group].words[2];
            sum += half(i < 2 ? of_a : of_a >> 32, k) * half(k < 8 ? of_b : of_b >> 32, k);
        }
        d[i] = sum;
    }
}

template <bool FIRST>
static void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) { mma_of<FIRST, __half>(d, a, b0, b1); }
template <bool FIRST>
static void mma_bfloat16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) { mma_of<FIRST, __nv_bfloat16>(d, a, b0, b1); }

// m16n8k8. Lane l has of a: rows l / 4 and l / 4 + 8, of b: row l / 4; of both k = l % 4 and that 4 behind.
static uint32_t to_tf32(float x) { return std::isfinite(x) ? (bits<uint32_t>(x) + 0x1000) & 0xffffe000 : bits<uint32_t>(x); }
static void mma_tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    const auto pair = [](uint32_t low, uint32_t high) { return low | static_cast<uint64_t>(high) << 32; };
    const Posted* const all = post({{pair(a[0], a[1]), pair(a[2], a[3]), pair(b[0], b[1])}});
    const int lane = current % 32;
    for (int i = 0; i < 4; ++i) {
        for (int k = 0; k < 8; ++k) {
            const uint64_t of_a = all[lane / 4 * 4 + k % 4].words[k / 4], of_b = all[(lane % 4 * 2 + i % 2) * 4 + k % 4].words[2];
            d[i] += bits<float>(static_cast<uint32_t>(of_a >> (i < 2 ? 0 : 32))) * bits<float>(static_cast<uint32_t>(of_b >> (k < 4 ? 0 : 32)));
        }
    }
}
