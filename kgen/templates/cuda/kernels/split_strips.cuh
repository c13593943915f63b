// Splits the columns of float32 matrices into two float16 terms each, as rows, for products of float32 accuracy on
// tensor cores, or takes the first of these alone (sm_90):
//
//     in [matrices, K, cols]          column c: in * 2^exponents[c] = high + low, its largest magnitude taken to [2^14,
//                                     2^15)
//     terms [TERMS, matrices * cols, LD]     high, then low; zeros from K to LD
//     exponents [matrices * cols]     0 for a column of zeros; NOT_FINITE for one with a NaN or an infinity, whose
//                                     terms are zeros
//
// A cluster of PARTS blocks takes 32 columns and keeps them in registers, so that they are read once. Rows of a
// BALANCED matrix are multiplied by their `powers` first.
template <int K, int LD, int TERMS, int PARTS, bool BALANCED>
__global__ void __launch_bounds__(COLUMN_THREADS) split_strips_kernel(
    const float* in, __half* __restrict__ terms, int* __restrict__ exponents, const int cols, const long long columns,
    const float* powers
) {
    start_next();
    wait_for_previous();
    constexpr int STEPS = (LD + PARTS * COLUMN_STEP - 1) / (PARTS * COLUMN_STEP);
    __shared__ unsigned largest_of[32];
    __shared__ int exponent_of[32];
    const int strips = (cols + 31) / 32, part = blockIdx.x % PARTS, unit = blockIdx.x / PARTS;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const long long matrix = unit / strips;
    const int first = unit % strips * 32, begin = part * STEPS * COLUMN_STEP;
    const float* const from = in + matrix * K * cols + min(first + lane, cols - 1);
    float v[STEPS][8];
    #pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
            const int k = begin + step * COLUMN_STEP + 8 * warp + j;
            v[step][j] = k < K ? element_of<BALANCED>(from, k, cols, powers) : 0.0f;
        }
    }
    float of_thread = 0.0f;
    #pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        #pragma unroll
        for (int j = 0; j < 8; ++j) of_thread = larger_magnitude(of_thread, v[step][j]);
    }
    const int column = own_column();
    const bool there = first + column < cols;
    const long long own = matrix * cols + first + column;  // the column that this half of a warp writes
    unsigned largest = largest_of_strip(of_thread);
    if constexpr (PARTS > 1) {
        if (lane % 16 == 0) largest_of[column] = largest;
        cluster_sync();
        largest = 0;
        #pragma unroll
        for (int block = 0; block < PARTS; ++block) largest = max(largest, cluster_partial(largest_of[column], block));
    }
    if (lane % 16 == 0) {
        exponent_of[column] = row_exponent(largest);
        if (there && part == 0) exponents[own] = exponent_of[column];
    }
    __syncthreads();
    const bool finite = exponent_of[lane] != NOT_FINITE;
    const int exponent = finite ? exponent_of[lane] : 0;
    #pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        #pragma unroll
        for (int j = 0; j < 8; ++j) v[step][j] = finite ? v[step][j] : 0.0f;
        store_strip_terms<LD, TERMS>(v[step], exponent, terms, columns, own, there, begin + step * COLUMN_STEP);
    }
    if constexpr (PARTS > 1) cluster_sync();  // the others may still read from this block
}

template <int K, int LD, int TERMS, bool BALANCED = false>
static void split_strips(
    const float* in, __half* terms, int* exponents, const long long matrices, const int cols, const cudaStream_t stream,
    const float* powers = nullptr
) {
    // 32 elements to a thread, or more.
    constexpr int NEEDED = (LD + 4 * COLUMN_STEP - 1) / (4 * COLUMN_STEP), PARTS = NEEDED < 8 ? NEEDED : 8;
    const Shape shape = {dim3(static_cast<unsigned>(matrices * ((cols + 31) / 32) * PARTS)), COLUMN_THREADS, 0, PARTS};
    const auto kernel = split_strips_kernel<K, LD, TERMS, PARTS, BALANCED>;
    launch_early(kernel, shape, stream, in, terms, exponents, cols, matrices * cols, powers);
}
