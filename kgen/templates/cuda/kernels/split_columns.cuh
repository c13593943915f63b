// Splits the columns of float32 matrices into two float16 terms each, as rows, for products of float32 accuracy on
// tensor cores, or takes the first of these alone:
//
//     in [matrices, K, cols]          column c: in * 2^exponents[c] = high + low, its largest magnitude taken to [2^14,
//                                     2^15)
//     terms [TERMS, matrices * cols, LD]     high, then low; zeros from K to LD
//     exponents [matrices * cols]     0 for a column of zeros; NOT_FINITE for one with a NaN or an infinity, whose
//                                     terms are zeros
//
// A block takes 32 columns: it reads them once for the largest elements and again, mostly from the cache, for the
// terms. Where there are few columns, `parts` blocks share them, and the exponents are KNOWN. Rows of a BALANCED matrix
// are multiplied by their `powers` first.

// The bits of the largest magnitudes of 32 columns, of which this block takes a part; each thread is given that of
// own_column().
template <int K, bool BALANCED>
__device__ __forceinline__ unsigned largest_of_columns(
    const float* from, const int cols, const int part, const int parts, const float* powers
) {
    const int warp = threadIdx.x / 32;
    float of_thread = 0.0f;
    for (int begin = part * COLUMN_STEP + 8 * warp; begin < K; begin += parts * COLUMN_STEP) {
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
            if (begin + j < K) {
                of_thread = larger_magnitude(of_thread, element_of<BALANCED>(from, begin + j, cols, powers));
            }
        }
    }
    return largest_of_strip(of_thread);
}

template <int K, bool BALANCED>
__global__ void __launch_bounds__(COLUMN_THREADS) largest_columns_kernel(
    const float* in, unsigned* largest, const int cols, const int parts, const float* powers
) {
    start_next();
    wait_for_previous();
    const int strips = (cols + 31) / 32, part = blockIdx.x % parts, unit = blockIdx.x / parts;
    const long long matrix = unit / strips;
    const int first = unit % strips * 32, own = first + own_column();
    const float* const from = in + matrix * K * cols + min(first + static_cast<int>(threadIdx.x) % 32, cols - 1);
    const unsigned of_column = largest_of_columns<K, BALANCED>(from, cols, part, parts, powers);
    if (threadIdx.x % 16 == 0 && own < cols) atomicMax(largest + matrix * cols + own, of_column);
}

template <int K, int LD, int TERMS, bool KNOWN, bool BALANCED>
__global__ void __launch_bounds__(COLUMN_THREADS) split_columns_kernel(
    const float* in, __half* __restrict__ terms, int* exponents, const int cols, const long long columns,
    const int parts, const float* powers
) {
    start_next();
    wait_for_previous();
    __shared__ int exponent_of[32];
    const int strips = (cols + 31) / 32, part = blockIdx.x % parts, unit = blockIdx.x / parts;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const long long matrix = unit / strips;
    const int first = unit % strips * 32;
    const float* const from = in + matrix * K * cols + min(first + lane, cols - 1);
    const int column = own_column();
    const bool there = first + column < cols;
    const long long own = matrix * cols + first + column;  // the column that this half of a warp writes
    if constexpr (KNOWN) {
        if (lane % 16 == 0) exponent_of[column] = there ? exponents[own] : 0;
    } else {
        const unsigned of_column = largest_of_columns<K, BALANCED>(from, cols, 0, 1, powers);
        if (lane % 16 == 0) {
            exponent_of[column] = row_exponent(of_column);
            if (there) exponents[own] = exponent_of[column];
        }
    }
    __syncthreads();
    const int exponent = exponent_of[lane];
    const auto load = [&](float (&v)[8], const int begin) {
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
            const int k = begin + 8 * warp + j;
            v[j] = k < K && exponent != NOT_FINITE ? element_of<BALANCED>(from, k, cols, powers) : 0.0f;
        }
    };
    float ahead[8];
    load(ahead, part * COLUMN_STEP);
    for (int begin = part * COLUMN_STEP; begin < LD; begin += parts * COLUMN_STEP) {
        float v[8];
        #pragma unroll
        for (int j = 0; j < 8; ++j) v[j] = ahead[j];
        load(ahead, begin + parts * COLUMN_STEP);
        store_strip_terms<LD, TERMS>(v, exponent == NOT_FINITE ? 0 : exponent, terms, columns, own, there, begin);
    }
}

template <int K, int LD, int TERMS, bool BALANCED = false>
static void split_columns(
    const float* in, __half* terms, int* exponents, const long long matrices, const int cols, const cudaStream_t stream,
    const float* powers = nullptr
) {
    constexpr int STEPS = (LD + COLUMN_STEP - 1) / COLUMN_STEP, BLOCKS = 264;  // as many as a chip runs at a time
    const int blocks = static_cast<int>(matrices * ((cols + 31) / 32)), most = 4 * BLOCKS / blocks;
    if (2 * blocks > BLOCKS || STEPS < 16) {
        const Shape shape = {dim3(static_cast<unsigned>(blocks)), COLUMN_THREADS};
        launch_early(
            split_columns_kernel<K, LD, TERMS, false, BALANCED>, shape, stream, in, terms, exponents, cols,
            matrices * cols, 1, powers
        );
        return;
    }
    const int parts = most < STEPS ? most : STEPS;
    const Shape shape = {dim3(static_cast<unsigned>(blocks * parts)), COLUMN_THREADS};
    cudaMemsetAsync(exponents, 0, matrices * cols * sizeof(int), stream);
    launch_early(
        largest_columns_kernel<K, BALANCED>, shape, stream, in, reinterpret_cast<unsigned*>(exponents), cols, parts,
        powers
    );
    make_exponents(exponents, matrices * cols, stream);
    launch_early(
        split_columns_kernel<K, LD, TERMS, true, BALANCED>, shape, stream, in, terms, exponents, cols, matrices * cols,
        parts, powers
    );
}
