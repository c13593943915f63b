// The same as split_rows for rows of 256 columns at most: a block takes several, eight columns to each of a row's LANES
// lanes.
template <int COLS, int LD, int LANES, int TERMS, bool BALANCED>
__global__ void __launch_bounds__(256) split_short_kernel(
    const float* in, __half* __restrict__ terms, int* __restrict__ exponents, const long long rows, const float* powers
) {
    start_next();
    wait_for_previous();
    const int lane = threadIdx.x % LANES;
    const long long row = blockIdx.x * (256ll / LANES) + threadIdx.x / LANES;
    float v[8] = {};
    if (row < rows) load_group<COLS, LANES>(v, in + row * COLS, 0, lane);
    if constexpr (BALANCED) {
        float of_columns[8];
        load_group<COLS, LANES>(of_columns, powers, 0, lane);
        #pragma unroll
        for (int j = 0; j < 8; ++j) v[j] *= of_columns[j];
    }
    float of_lane = 0.0f;
    #pragma unroll
    for (int j = 0; j < 8; ++j) of_lane = larger_magnitude(of_lane, v[j]);
    unsigned largest = __float_as_uint(of_lane);
    #pragma unroll
    for (int offset = 1; offset < LANES; offset *= 2) {
        largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
    }
    if (row >= rows) return;
    const int exponent = row_exponent(largest);
    if (lane == 0) exponents[row] = exponent;
    #pragma unroll
    for (int j = 0; j < 8; ++j) v[j] = exponent == NOT_FINITE ? 0.0f : v[j];
    __half* high = terms + row * LD;
    store_terms<COLS, LD, LANES, TERMS>(high, high + rows * LD, 0, lane, v, exponent == NOT_FINITE ? 0 : exponent);
}

template <int COLS, int LD, int LANES, int TERMS, bool BALANCED = false>
static void split_short_rows(
    const float* in, __half* terms, int* exponents, const long long rows, const cudaStream_t stream,
    const float* powers = nullptr
) {
    const Shape shape = {dim3(static_cast<unsigned>((rows * LANES + 255) / 256)), 256};
    launch_early(
        split_short_kernel<COLS, LD, LANES, TERMS, BALANCED>, shape, stream, in, terms, exponents, rows, powers
    );
}
