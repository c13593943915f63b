// CUDA's runtime as the text of kernels uses it, for a C++ compiler: a GPU that is emulated on a CPU (device.cpp says how).
//
// emulated.py turns what is no C++ into calls: an inline assembly statement into one call of namespace `ptx` for each of its
// instructions, a declaration of shared memory into one of `emulation::shared`, and <<< >>> into `emulation::launch`.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#define __device__
#define __host__
#define __global__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__
#define __restrict__
#define __constant__ static const
#define __grid_constant__
#define __cluster_dims__(...)
#define __launch_bounds__(...)
#define CUDART_VERSION 12080

struct alignas(8) int2 { int x, y; };
struct int3 { int x, y, z; };
struct alignas(16) int4 { int x, y, z, w; };
struct uint3 { unsigned x, y, z; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
static inline int2 make_int2(int x, int y) { return {x, y}; }
static inline int3 make_int3(int x, int y, int z) { return {x, y, z}; }
static inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

template <typename T> constexpr T min(const T a, const T b) { return b < a ? b : a; }
template <typename T> constexpr T max(const T a, const T b) { return a < b ? b : a; }
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline float __fdividef(float a, float b) { return a / b; }
static inline int __clzll(long long x) { return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64; }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }

// The bits of a value as another type; what is wider is filled with zeros.
template <typename To, typename From>
static inline To as_bits(const From from) {
    To to = {};
    std::memcpy(&to, &from, sizeof to < sizeof from ? sizeof to : sizeof from);
    return to;
}
static inline float __int_as_float(int x) { return as_bits<float>(x); }
static inline float __uint_as_float(unsigned x) { return as_bits<float>(x); }
static inline int __float_as_int(float x) { return as_bits<int>(x); }
static inline unsigned __float_as_uint(float x) { return as_bits<unsigned>(x); }

// Where the running thread is.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

// Tensor maps of the driver.
enum CUtensorMapSwizzle { CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_SWIZZLE_32B, CU_TENSOR_MAP_SWIZZLE_64B, CU_TENSOR_MAP_SWIZZLE_128B };
struct alignas(64) CUtensorMap {
    const unsigned char* memory;
    int rank, element_bytes, swizzle_bytes;
    bool windows;  // in im2col mode
    int64_t sizes[5], strides[5];  // strides in bytes
    int box[5], steps[5];
    int lower[3], last[3], channels, pixels;  // in im2col mode: the first and the last base pixel, channels and pixels of a box
};

namespace emulation {

constexpr int RESIDENT = 10;  // blocks of a cooperative launch on a multiprocessor

// A kernel with its arguments.
struct Call {
    virtual void run() const = 0;
    virtual ~Call() = default;
};

struct Launch {
    dim3 grid, block;
    long long shared_bytes = 0;
    int cluster = 1;
    bool early = false;     // may start while the kernels before it run
    bool together = false;  // all blocks run beside each other
};

int enqueue(const void* kernel, const Launch& launch, const Call* call);
void declare_cluster(const void* kernel, int blocks);
void allow_shared(const void* kernel, int bytes);
unsigned char* dynamic_shared(int alignment);
void* static_shared(const void* declaration, int bytes, int alignment);
int lane();
int warp_alive();
void synchronize_block();
void changed();  // memory that another thread may wait for has changed
[[noreturn]] void fail(const char* format, ...);

// Waits until all lanes of the warp have come to this function; the last one calls run(operands), nullptr for lanes that have ended.
void meet_warp(const char* function, void* operand, void (*run)(void* const* operands));

// The launchers of a file run what they have queued when they return.
struct Launcher {
    ~Launcher();
};

template <typename T, typename Declaration>
T& shared(Declaration, const int alignment = alignof(T)) {
    static const char declaration = 0;
    return *static_cast<T*>(static_shared(&declaration, sizeof(T), alignment));
}

template <typename Work>
struct Bound final : Call {
    Work work;
    explicit Bound(const Work& work) : work(work) {}
    void run() const override { work(); }
};

// Arguments become parameters here, as in CUDA. A lambda that holds them compiles faster than a std::tuple.
template <typename... Parameters, typename... Arguments>
int launch(void (*kernel)(Parameters...), const Launch& launch, const Arguments... arguments) {
    const auto bound = [kernel, ...own = Parameters(arguments)] { kernel(own...); };
    return enqueue(reinterpret_cast<const void*>(kernel), launch, new Bound<decltype(bound)>(bound));
}

// What this lane gets of all lanes' values: that of lane from(own lane).
template <typename T, typename From>
T shuffle(const T value, const From from) {
    struct Operand { T value, found; int from; } operand = {value, value, from(lane())};
    meet_warp("a shuffle", &operand, [](void* const* all) {
        for (int lane = 0; lane < 32; ++lane) {
            if (!all[lane]) continue;
            Operand& own = *static_cast<Operand*>(all[lane]);
            if (own.from >= 0 && own.from < 32 && all[own.from]) own.found = static_cast<Operand*>(all[own.from])->value;
        }
    });
    return operand.found;
}

// One value for the warp out of all lanes' values.
template <typename Merge>
unsigned reduce(const unsigned value, Merge) {
    struct Operand { unsigned value, found; } operand = {value, 0};
    meet_warp("a reduction of a warp", &operand, [](void* const* all) {
        unsigned found = 0;
        for (int lane = 0; lane < 32; ++lane) {
            if (all[lane]) found = Merge()(found, static_cast<Operand*>(all[lane])->value, lane);
        }
        for (int lane = 0; lane < 32; ++lane) {
            if (all[lane]) static_cast<Operand*>(all[lane])->found = found;
        }
    });
    return operand.found;
}

struct Largest { unsigned operator()(unsigned found, unsigned value, int) const { return max(found, value); } };
struct Ballot { unsigned operator()(unsigned found, unsigned value, int lane) const { return found | (value != 0u) << lane; } };

}  // namespace emulation

template <typename T> T __shfl_sync(unsigned, const T value, const int from) { return emulation::shuffle(value, [=](int) { return from; }); }
template <typename T> T __shfl_xor_sync(unsigned, const T value, const int mask) { return emulation::shuffle(value, [=](int lane) { return lane ^ mask; }); }
template <typename T> T __shfl_up_sync(unsigned, const T value, const int by) { return emulation::shuffle(value, [=](int lane) { return lane - by; }); }
template <typename T> T __shfl_down_sync(unsigned, const T value, const int by) { return emulation::shuffle(value, [=](int lane) { return lane + by; }); }
static inline unsigned __reduce_max_sync(unsigned, unsigned value) { return emulation::reduce(value, emulation::Largest()); }
static inline unsigned __ballot_sync(unsigned, int value) { return emulation::reduce(value, emulation::Ballot()); }
static inline int __any_sync(unsigned mask, int value) { return __ballot_sync(mask, value) != 0; }
static inline int __all_sync(unsigned mask, int value) { return !__any_sync(mask, !value); }
static inline void __syncwarp() { emulation::meet_warp("__syncwarp", nullptr, [](void* const*) {}); }
static __forceinline__ void __syncthreads() { emulation::synchronize_block(); }
int __syncthreads_or(int value);
static inline void __threadfence() {}

template <typename T> T atomicAdd(T* at, const T value) {
    const T before = *at;
    *at = before + value;
    emulation::changed();
    return before;
}
static inline void atomicAdd(float4* at, const float4 value) {
    const float values[4] = {value.x, value.y, value.z, value.w};
    for (int n = 0; n < 4; ++n) atomicAdd(reinterpret_cast<float*>(at) + n, values[n]);
}
static inline void atomicAdd(float2* at, const float2 value) {
    atomicAdd(&at->x, value.x);
    atomicAdd(&at->y, value.y);
}
template <typename T> T atomicMax(T* at, const T value) {
    const T before = *at;
    *at = max(before, value);
    emulation::changed();
    return before;
}
template <typename T> T atomicMin(T* at, const T value) {
    const T before = *at;
    *at = min(before, value);
    emulation::changed();
    return before;
}
template <typename T> T atomicCAS(T* at, const T expected, const T value) {
    const T before = *at;
    if (before == expected) *at = value;
    emulation::changed();
    return before;
}
template <typename T> T __ldcg(const T* from) { return *from; }
template <typename T> T __ldcs(const T* from) { return *from; }
template <typename T> T __ldg(const T* from) { return *from; }
template <typename T> void __stcs(T* to, const T value) { *to = value; }
size_t __cvta_generic_to_shared(const void* p);

// The runtime's functions.
using cudaStream_t = void*;
enum { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorInvalidConfiguration = 9, cudaErrorCooperativeLaunchTooLarge = 720 };
enum { cudaFuncAttributeMaxDynamicSharedMemorySize = 8, cudaDevAttrMultiProcessorCount = 16, cudaEnableDefault = 0 };
enum { cudaLaunchAttributeCooperative = 2, cudaLaunchAttributeClusterDimension = 4, cudaLaunchAttributeProgrammaticStreamSerialization = 6 };
enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess };
struct cudaLaunchAttribute {
    int id;
    struct {
        int cooperative, programmaticStreamSerializationAllowed;
        dim3 clusterDim;
    } val;
};
struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute* attrs;
    unsigned numAttrs;
};
int cudaGetLastError();
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone };
static inline int cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) { return *status = cudaStreamCaptureStatusNone; }
int cudaGetDevice(int* device);
int cudaDeviceGetAttribute(int* value, int attribute, int device);
int cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream);
int cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned version, int flags, cudaDriverEntryPointQueryResult* status);

template <typename... Parameters>
int cudaFuncSetAttribute(void (*kernel)(Parameters...), int, const int bytes) {
    emulation::allow_shared(reinterpret_cast<const void*>(kernel), bytes);
    return bytes > 232448 ? cudaErrorInvalidValue : cudaSuccess;
}

template <typename... Parameters>
int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void (*)(Parameters...), int, size_t) {
    *blocks = emulation::RESIDENT;
    return cudaSuccess;
}

template <typename... Parameters, typename... Arguments>
int cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...), const Arguments... arguments) {
    emulation::Launch launch = {config->gridDim, config->blockDim, static_cast<long long>(config->dynamicSmemBytes)};
    for (unsigned i = 0; i < config->numAttrs; ++i) {
        const cudaLaunchAttribute& attribute = config->attrs[i];
        if (attribute.id == cudaLaunchAttributeClusterDimension) launch.cluster = attribute.val.clusterDim.x;
        if (attribute.id == cudaLaunchAttributeCooperative) launch.together = attribute.val.cooperative;
        if (attribute.id == cudaLaunchAttributeProgrammaticStreamSerialization) launch.early = attribute.val.programmaticStreamSerializationAllowed;
    }
    return emulation::launch(kernel, launch, arguments...);
}

// Instructions, each named as in PTX, with its operands in their order; braces and brackets are left out.
namespace ptx {

using emulation::fail;

// Approximations, with errors as large as the GPU's may be: of the sign of a number's last bit.
static inline float flushed(float x) { return fabsf(x) < 1.17549435e-38f ? copysignf(0.0f, x) : x; }
static inline float off(float x, float by) { return flushed(__float_as_int(x) & 1 ? x + by : x - by); }
static inline void ex2_approx_ftz_f32(float& to, float x) {
    const float exact = exp2f(flushed(x));
    to = exact == 0.0f || exact > 3.0e38f ? exact : off(exact, exact * 0x1p-22f);
}
static inline void rcp_approx_ftz_f32(float& to, float x) {
    const float exact = 1.0f / flushed(x);
    to = std::isfinite(exact) ? off(exact, exact * 0x1p-23f) : exact;
}
static inline void lg2_approx_ftz_f32(float& to, float x) {
    const float exact = log2f(flushed(x));
    to = !std::isfinite(exact) ? exact : fabsf(exact) > 1.0f ? off(exact, exact * 0x1p-22f) : off(exact, 0x1p-22f);
}

struct Products {  // of a warpgroup: 64 rows of a by `cols` rows of b over 16 of k
    uint64_t a, b;
    int cols;
    bool accumulate, bfloat16, turned_a, turned_b;
    float* sums;
    const uint32_t* rows = nullptr;  // of a, four words in registers; nullptr: in shared memory
};
void wgmma_fence_sync_aligned();
void wgmma_commit_group_sync_aligned();
void wgmma_wait_group_sync_aligned(int pending);

// The operands of one instruction: sums of a thread, then all others.
struct Taken {
    float* sums[128];
    const void* places[9];
    uint64_t rest[9];
    int floats = 0, others = 0;

    void take(float& operand) { sums[floats++] = &operand; }
    template <typename T> void take(const T& operand) { places[others] = &operand, rest[others++] = operand; }
};
void products(const Taken& taken, int cols, bool bfloat16);

template <int COLS, typename... Operands>
void products(const bool bfloat16, Operands&... operands) {
    static_assert(sizeof...(Operands) <= COLS / 2 + 9);
    Taken taken;
    (taken.take(operands), ...);
    products(taken, COLS, bfloat16);
}
#define PRODUCTS(N) \
    template <typename... Operands> void wgmma_mma_async_sync_aligned_m64n##N##k16_f32_f16_f16(Operands&&... operands) { products<N>(false, operands...); } \
    template <typename... Operands> void wgmma_mma_async_sync_aligned_m64n##N##k16_f32_bf16_bf16(Operands&&... operands) { products<N>(true, operands...); }
PRODUCTS(8) PRODUCTS(16) PRODUCTS(24) PRODUCTS(32) PRODUCTS(40) PRODUCTS(48) PRODUCTS(56) PRODUCTS(64)
PRODUCTS(72) PRODUCTS(80) PRODUCTS(88) PRODUCTS(96) PRODUCTS(104) PRODUCTS(112) PRODUCTS(120) PRODUCTS(128)
PRODUCTS(136) PRODUCTS(144) PRODUCTS(152) PRODUCTS(160) PRODUCTS(168) PRODUCTS(176) PRODUCTS(184) PRODUCTS(192)
PRODUCTS(200) PRODUCTS(208) PRODUCTS(216) PRODUCTS(224) PRODUCTS(232) PRODUCTS(240) PRODUCTS(248) PRODUCTS(256)
#undef PRODUCTS

// Products of a warp, 16 rows of a by 8 rows of b. Lane l has of a: rows l / 4 and l / 4 + 8, of b: row l / 4. Of both it has, in
// words of 32 bits, the k at l % 4 and 4 behind.
enum Kind { FLOAT16, BFLOAT16, TF32 };
struct Fragments { Kind kind; uint32_t a[4], b[2]; float sums[4]; };
void multiply_fragments(Fragments& fragments);
static inline void mma(
    Kind kind, float& d0, float& d1, float& d2, float& d3, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1,
    float c0, float c1, float c2, float c3
) {
    Fragments own = {kind, {a0, a1, a2, a3}, {b0, b1}, {c0, c1, c2, c3}};
    multiply_fragments(own);
    d0 = own.sums[0], d1 = own.sums[1], d2 = own.sums[2], d3 = own.sums[3];
}
template <typename... Operands>
void mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(Operands&&... operands) { mma(FLOAT16, operands...); }
template <typename... Operands>
void mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(Operands&&... operands) { mma(BFLOAT16, operands...); }
template <typename... Operands>
void mma_sync_aligned_m16n8k8_row_col_f32_tf32_tf32_f32(Operands&&... operands) { mma(TF32, operands...); }
// To the nearest value of TF32, away from zero where two are as near.
static inline void cvt_rna_tf32_f32(uint32_t& to, float x) { to = std::isfinite(x) ? (as_bits<uint32_t>(x) + 0x1000) & 0xffffe000 : as_bits<uint32_t>(x); }

// Four 8 x 8 matrices, each row at the address of a lane.
void load_matrices(uint32_t (&found)[4], uint32_t address, bool transposed);
static inline void ldmatrix_sync_aligned_m8n8_x4_shared_b16(uint32_t& r0, uint32_t& r1, uint32_t& r2, uint32_t& r3, uint32_t address) {
    uint32_t found[4];
    load_matrices(found, address, false);
    r0 = found[0], r1 = found[1], r2 = found[2], r3 = found[3];
}
static inline void ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(uint32_t& r0, uint32_t& r1, uint32_t& r2, uint32_t& r3, uint32_t address) {
    uint32_t found[4];
    load_matrices(found, address, true);
    r0 = found[0], r1 = found[1], r2 = found[2], r3 = found[3];
}

// Copies in the background. Their memory is poisoned until it is waited for.
void copy_async(uint32_t to, const void* from, int bytes, int from_bytes);
static inline void cp_async_cg_shared_global_L2_128B(uint32_t to, const void* from, int bytes) { copy_async(to, from, bytes, bytes); }
static inline void cp_async_cg_shared_global_L2_128B(uint32_t to, const void* from, int bytes, int from_bytes) { copy_async(to, from, bytes, from_bytes); }
static inline void cp_async_ca_shared_global(uint32_t to, const void* from, int bytes, int from_bytes) { copy_async(to, from, bytes, from_bytes); }
void cp_async_commit_group();
void cp_async_wait_group(int pending);

struct Box {
    const CUtensorMap* map;
    uint32_t to, barrier;
    int at[5];
    int tap[3] = {};
    unsigned blocks = 0;  // of the cluster, a bit for each; 0: this one
};
void copy_box(const Box& box);
static inline void cp_async_bulk_tensor_3d_shared_cluster_global_mbarrier_complete_tx_bytes(
    uint32_t to, const CUtensorMap* map, int x, int y, int z, uint32_t barrier
) { copy_box({map, to, barrier, {x, y, z}}); }
static inline void cp_async_bulk_tensor_4d_shared_cluster_global_mbarrier_complete_tx_bytes(
    uint32_t to, const CUtensorMap* map, int x, int y, int z, int w, uint32_t barrier
) { copy_box({map, to, barrier, {x, y, z, w}}); }
static inline void cp_async_bulk_tensor_3d_shared_cluster_global_mbarrier_complete_tx_bytes_multicast_cluster(
    uint32_t to, const CUtensorMap* map, int x, int y, int z, uint32_t barrier, uint16_t blocks
) { copy_box({map, to, barrier, {x, y, z}, {}, blocks}); }
static inline void cp_async_bulk_tensor_3d_shared_cluster_global_im2col_mbarrier_complete_tx_bytes(
    uint32_t to, const CUtensorMap* map, int c, int w, int n, uint32_t barrier, uint16_t tap
) { copy_box({map, to, barrier, {c, w, n}, {tap}}); }
static inline void cp_async_bulk_tensor_4d_shared_cluster_global_im2col_mbarrier_complete_tx_bytes(
    uint32_t to, const CUtensorMap* map, int c, int w, int h, int n, uint32_t barrier, uint16_t tap_w, uint16_t tap_h
) { copy_box({map, to, barrier, {c, w, h, n}, {tap_w, tap_h}}); }
static inline void cp_async_bulk_tensor_5d_shared_cluster_global_im2col_mbarrier_complete_tx_bytes(
    uint32_t to, const CUtensorMap* map, int c, int w, int h, int d, int n, uint32_t barrier, uint16_t tap_w, uint16_t tap_h, uint16_t tap_d
) { copy_box({map, to, barrier, {c, w, h, d, n}, {tap_w, tap_h, tap_d}}); }

void mbarrier_init_shared_cta_b64(uint32_t barrier, int arrivals);
void mbarrier_arrive_expect_tx_shared_cta_b64(uint32_t barrier, int bytes);
void mbarrier_arrive_shared_cta_b64(uint32_t barrier);
void mbarrier_arrive_shared_cluster_b64(uint32_t barrier);
void mbarrier_try_wait_parity_shared_cta_b64(uint32_t& done, uint32_t barrier, uint32_t parity);
void bar_sync(int barrier, int threads);
void bar_arrive(int barrier, int threads);
void barrier_cluster_arrive_release_aligned();
void barrier_cluster_arrive_relaxed_aligned();
void barrier_cluster_wait_acquire_aligned();
uint32_t cluster_ctarank();
void mapa_shared_cluster_u32(uint32_t& remote, uint32_t address, int block);
void mapa_u64(uint64_t& remote, const void* own, int block);
void st_shared_cluster_v4_f32(uint32_t address, float x, float y, float z, float w);
void griddepcontrol_wait();
void poll();  // lets other threads run

template <typename T> void ld_acquire_gpu_global_u32(T& value, const T* from) { poll(), value = *from; }
static inline void ld_relaxed_gpu_global_v4_f32(float& x, float& y, float& z, float& w, const float* from) {
    poll();
    const uint4 bits = *reinterpret_cast<const uint4*>(from);
    std::memcpy(&x, &bits.x, 4), std::memcpy(&y, &bits.y, 4), std::memcpy(&z, &bits.z, 4), std::memcpy(&w, &bits.w, 4);
}
static inline void ld_relaxed_gpu_global_v4_u32(uint32_t& x, uint32_t& y, uint32_t& z, uint32_t& w, const void* from) {
    poll();
    const uint4 bits = *static_cast<const uint4*>(from);
    x = bits.x, y = bits.y, z = bits.z, w = bits.w;
}
static inline void st_relaxed_gpu_global_u16(void* to, uint16_t bits) { std::memcpy(to, &bits, 2), emulation::changed(); }
static inline void st_relaxed_gpu_global_u32(void* to, uint32_t bits) { std::memcpy(to, &bits, 4), emulation::changed(); }
static inline void st_global_v2_b32(void* to, uint32_t x, uint32_t y) { *static_cast<uint2*>(to) = {x, y}; }
static inline void st_global_v4_b32(void* to, uint32_t x, uint32_t y, uint32_t z, uint32_t w) { *static_cast<uint4*>(to) = {x, y, z, w}; }
static inline void min_NaN_f32(float& to, float a, float b) { to = a != a ? a : b != b ? b : fminf(a, b); }
static inline void max_NaN_f32(float& to, float a, float b) { to = a != a ? a : b != b ? b : fmaxf(a, b); }
template <typename T, typename U> void mov_u32(T& to, const U value) { to = value; }
static inline void setp_eq_s32(uint32_t& to, int a, int b) { to = a == b; }
template <typename T> void selp_u32(T& to, uint32_t a, uint32_t b, uint32_t which) { to = which ? a : b; }
static inline void prefetch_global_L2(const void*) {}
static inline void fence_mbarrier_init_release_cluster() {}
void fence_proxy_async_shared_cta();
static inline void griddepcontrol_launch_dependents() {}
void setmaxnreg_inc_sync_aligned_u32(int count);
void setmaxnreg_dec_sync_aligned_u32(int count);

}  // namespace ptx
