// Splits the columns of float32 matrices into two float16 terms each, as rows, for products of float32 accuracy on tensor
// cores, or takes the first of these alone:
//
//     in [matrices, K, cols]          column c: in * 2^exponents[c] = high + low, its largest magnitude taken to [2^14, 2^15)
//     terms [TERMS, matrices * cols, LD]     high, then low; zeros from K to LD
//     exponents [matrices * cols]     0 for a column of zeros; NOT_FINITE for one with a NaN or an infinity, whose terms are zeros
//
// A block takes 32 columns: it reads them once for the largest elements and again, mostly from the cache, for the terms, which
// it turns in shared memory. A warp reads 32 columns of a row, and writes a part of one column.
template <int K, int LD, int TERMS>
__global__ void __launch_bounds__(1024) split_columns_kernel(
    const float* in, __half* __restrict__ terms, int* __restrict__ exponents, const int cols, const long long columns
) {
    start_next();
    wait_for_previous();
    constexpr int STEP = 256;  // elements of a column that are turned at once: eight to a thread
    __shared__ uint4 tile[TERMS][32][STEP / 8 + 1];
    __shared__ unsigned largest[32][33];
    __shared__ int exponent_of[32];
    const int strips = (cols + 31) / 32, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const long long matrix = blockIdx.x / strips;
    const int first = static_cast<int>(blockIdx.x % strips) * 32;
    const float* const from = in + matrix * K * cols + min(first + lane, cols - 1);

    float of_thread = 0.0f;
    for (int begin = 8 * warp; begin < K; begin += STEP) {
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
            if (begin + j < K) of_thread = larger_magnitude(of_thread, from[static_cast<long long>(begin + j) * cols]);
        }
    }
    largest[warp][lane] = __float_as_uint(of_thread);
    __syncthreads();
    const unsigned of_column = __reduce_max_sync(0xffffffffu, largest[lane][warp]);
    const bool there = first + warp < cols;
    const long long own = matrix * cols + first + warp;  // the column that this warp writes
    if (lane == 0) {
        exponent_of[warp] = row_exponent(of_column);
        if (there) exponents[own] = exponent_of[warp];
    }
    __syncthreads();
    const int exponent = exponent_of[lane];
    for (int begin = 0; begin < LD; begin += STEP) {
        float v[8];
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
            const int k = begin + 8 * warp + j;
            v[j] = k < K && exponent != NOT_FINITE ? from[static_cast<long long>(k) * cols] : 0.0f;
        }
        alignas(16) __half2 high[4], low[4];
        split_group(v, exponent == NOT_FINITE ? 0 : exponent, high, low);
        store_pairs<4>(&tile[0][lane][warp], high);
        if constexpr (TERMS == 2) store_pairs<4>(&tile[1][lane][warp], low);
        __syncthreads();
        const int at = begin + 8 * lane;
        if (there && at < LD) {
            #pragma unroll
            for (int term = 0; term < TERMS; ++term) {
                *reinterpret_cast<uint4*>(terms + (term * columns + own) * LD + at) = tile[term][warp][lane];
            }
        }
        __syncthreads();
    }
}

template <int K, int LD, int TERMS>
static void split_columns(
    const float* in, __half* terms, int* exponents, const long long matrices, const int cols, const cudaStream_t stream
) {
    const unsigned blocks = static_cast<unsigned>(matrices * ((cols + 31) / 32));
    launch_early(split_columns_kernel<K, LD, TERMS>, {dim3(blocks), 1024}, stream, in, terms, exponents, cols, matrices * cols);
}
