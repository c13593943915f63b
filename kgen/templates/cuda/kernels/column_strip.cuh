// A block of COLUMN_WARPS warps works on a strip of 32 columns, COLUMN_STEP elements of each at a time, eight to a
// thread. A warp has 32 columns of eight rows, and each half of it writes a part of one column.
constexpr int COLUMN_WARPS = 16, COLUMN_THREADS = 32 * COLUMN_WARPS;
constexpr int COLUMN_STEP = 8 * COLUMN_WARPS;

// Of the 32 columns of a block, the one that a half of a warp writes.
__device__ __forceinline__ int own_column() {
    return threadIdx.x / 32 + threadIdx.x % 32 / 16 * 16;
}

// An element of a column. An element of a BALANCED matrix is multiplied by the power of its row first.
template <bool BALANCED>
__device__ __forceinline__ float element_of(const float* from, const int k, const int cols, const float* powers) {
    const float value = from[static_cast<long long>(k) * cols];
    if constexpr (BALANCED) return value * powers[k];
    return value;
}

// The bits of the largest magnitudes of 32 columns, from those that threads found; each thread is given that of
// own_column().
__device__ __forceinline__ unsigned largest_of_strip(const float of_thread) {
    __shared__ unsigned largest[COLUMN_WARPS][33];
    const int lane = threadIdx.x % 32;
    largest[threadIdx.x / 32][lane] = __float_as_uint(of_thread);
    __syncthreads();
    unsigned found = largest[lane % 16][own_column()];
    #pragma unroll
    for (int offset = 1; offset < 16; offset *= 2) found = max(found, __shfl_xor_sync(0xffffffffu, found, offset));
    return found;
}

// Splits a thread's eight elements of its lane's column, turns them in shared memory, and stores the terms of the strip
// from row `begin` on, where own_column() is `there`.
template <int LD, int TERMS>
__device__ __forceinline__ void store_strip_terms(
    const float (&v)[8], const int exponent, __half* terms, const long long columns, const long long own,
    const bool there, const int begin
) {
    __shared__ uint4 tile[TERMS][32][COLUMN_STEP / 8 + 1];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    alignas(16) __half2 high[4], low[4];
    split_group(v, exponent, high, low);
    store_pairs<4>(&tile[0][lane][warp], high);
    if constexpr (TERMS == 2) store_pairs<4>(&tile[1][lane][warp], low);
    __syncthreads();
    const int at = begin + lane % 16 * 8;
    if (there && at < LD) {
        #pragma unroll
        for (int term = 0; term < TERMS; ++term) {
            *reinterpret_cast<uint4*>(terms + (term * columns + own) * LD + at) = tile[term][own_column()][lane % 16];
        }
    }
    __syncthreads();
}
