// Splits the rows of a float32 matrix into two float16 terms each, for products of float32 accuracy on tensor cores, or
// takes the first of these alone:
//
//     in [rows, COLS]             row r: in * 2^exponents[r] = high + low, its largest magnitude taken to [2^14, 2^15)
//     terms [TERMS, rows, LD]     high, then low; zeros from COLS to LD
//     exponents [rows]            0 for a row of zeros; NOT_FINITE for a row with a NaN or an infinity, whose terms are
//                                 zeros
//
// A block takes a row and keeps it in registers, eight columns of each group to a thread. Columns of a BALANCED matrix
// are multiplied by their `powers` first.
template <int COLS, int LD, int THREADS, int GROUPS, int TERMS, bool BALANCED, bool ROUNDED>
__global__ void __launch_bounds__(THREADS) split_kernel(
    const float* in, __half* __restrict__ terms, int* __restrict__ exponents, const long long rows, const float* powers
) {
    start_next();
    wait_for_previous();
    const long long row = blockIdx.x;
    float v[GROUPS][8];
    #pragma unroll
    for (int g = 0; g < GROUPS; ++g) {
        load_group<COLS, THREADS>(v[g], in + row * COLS, g, threadIdx.x);
        if constexpr (BALANCED) {
            float of_columns[8];
            load_group<COLS, THREADS>(of_columns, powers, g, threadIdx.x);
            #pragma unroll
            for (int j = 0; j < 8; ++j) v[g][j] *= of_columns[j];
        }
    }
    float of_thread = 0.0f;
    #pragma unroll
    for (int g = 0; g < GROUPS; ++g) {
        #pragma unroll
        for (int j = 0; j < 8; ++j) of_thread = larger_magnitude(of_thread, v[g][j]);
    }
    const int exponent = row_exponent(block_largest<THREADS>(__float_as_uint(of_thread)));
    if (threadIdx.x == 0) exponents[row] = exponent;
    __half* high = terms + row * LD;
    #pragma unroll
    for (int g = 0; g < GROUPS; ++g) {
        #pragma unroll
        for (int j = 0; j < 8; ++j) v[g][j] = exponent == NOT_FINITE ? 0.0f : v[g][j];
        store_terms<COLS, LD, THREADS, TERMS, ROUNDED>(
            high, high + rows * LD, g, threadIdx.x, v[g], exponent == NOT_FINITE ? 0 : exponent
        );
    }
}

template <int COLS, int LD, int THREADS, int GROUPS, int TERMS, bool BALANCED = false, bool ROUNDED = false>
static void split_rows(
    const float* in, __half* terms, int* exponents, const long long rows, const cudaStream_t stream,
    const float* powers = nullptr
) {
    const Shape shape = {dim3(static_cast<unsigned>(rows)), THREADS};
    launch_early(
        split_kernel<COLS, LD, THREADS, GROUPS, TERMS, BALANCED, ROUNDED>, shape, stream, in, terms, exponents, rows,
        powers
    );
}
