// Splits the rows of a float32 matrix into two float16 terms each, for products of float32 accuracy on tensor cores, or
// takes the first of these alone:
//
//     in [rows, COLS]             row r: in * 2^exponents[r] = high + low, its largest magnitude taken to [2^14, 2^15)
//     terms [TERMS, rows, LD]     high, then low; zeros from COLS to LD
//     exponents [rows]            0 for a row of zeros; NOT_FINITE for a row with a NaN or an infinity, whose terms are
//                                 zeros
//
// A row is too long for a block's registers: some blocks share it, read it once for the largest element and again for
// the terms.
template <int COLS, int THREADS>
__global__ void __launch_bounds__(THREADS) largest_kernel(const float* in, unsigned* largest, const int parts) {
    start_next();
    wait_for_previous();
    const long long row = blockIdx.x / parts;
    float v[8];
    float of_thread = 0.0f;
    #pragma unroll 4
    for (int group = blockIdx.x % parts; group * THREADS * 8 < COLS; group += parts) {
        load_group<COLS, THREADS>(v, in + row * COLS, group, threadIdx.x);
        #pragma unroll
        for (int j = 0; j < 8; ++j) of_thread = larger_magnitude(of_thread, v[j]);
    }
    const unsigned of_block = block_largest<THREADS>(__float_as_uint(of_thread));
    if (threadIdx.x == 0) atomicMax(largest + row, of_block);
}

template <int COLS, int LD, int THREADS, int TERMS, bool ROUNDED>
__global__ void __launch_bounds__(THREADS) split_long_kernel(
    const float* in, __half* __restrict__ terms, const int* exponents, const long long rows, const int parts
) {
    start_next();
    wait_for_previous();
    const long long row = blockIdx.x / parts;
    const int exponent = exponents[row];
    __half* high = terms + row * LD;
    float v[8];
    #pragma unroll 4
    for (int group = blockIdx.x % parts; group * THREADS * 8 < LD; group += parts) {
        load_group<COLS, THREADS>(v, in + row * COLS, group, threadIdx.x);
        #pragma unroll
        for (int j = 0; j < 8; ++j) v[j] = exponent == NOT_FINITE ? 0.0f : v[j];
        store_terms<COLS, LD, THREADS, TERMS, ROUNDED>(
            high, high + rows * LD, group, threadIdx.x, v, exponent == NOT_FINITE ? 0 : exponent
        );
    }
}

template <int COLS, int LD, int THREADS, int TERMS, bool ROUNDED = false>
static void split_long_rows(
    const float* in, __half* terms, int* exponents, const long long rows, const cudaStream_t stream
) {
    constexpr int GROUPS = (LD + THREADS * 8 - 1) / (THREADS * 8), BLOCKS = 1024;  // some rounds of any chip
    const int parts = rows >= BLOCKS ? 1
        : BLOCKS / static_cast<int>(rows) < GROUPS ? BLOCKS / static_cast<int>(rows)
        : GROUPS;
    const dim3 blocks(static_cast<unsigned>(rows * parts));
    cudaMemsetAsync(exponents, 0, rows * sizeof(int), stream);
    launch_early(
        largest_kernel<COLS, THREADS>, {blocks, THREADS}, stream, in, reinterpret_cast<unsigned*>(exponents), parts
    );
    make_exponents(exponents, rows, stream);
    launch_early(
        split_long_kernel<COLS, LD, THREADS, TERMS, ROUNDED>, {blocks, THREADS}, stream, in, terms, exponents, rows,
        parts
    );
}
