// Writes a strip of 16 rows and 8 GROUPS columns of sums, as the tensor cores leave them, to rows of an even LD; what
// lies beyond a row's end goes nowhere.
template <int GROUPS, int LD>
__device__ __forceinline__ void store_strip(
    const float (&sums)[4 * GROUPS], float* __restrict__ to, const long long rows, const long long first_row,
    const int first_col
) {
    const int lane = threadIdx.x % 32;
    #pragma unroll
    for (int half = 0; half < 2; ++half) {
        const long long row = first_row + lane / 4 + 8 * half;
        if (row >= rows) continue;
        #pragma unroll
        for (int group = 0; group < GROUPS; ++group) {
            const int col = first_col + 8 * group + lane % 4 * 2;
            const float2 pair = make_float2(sums[4 * group + 2 * half], sums[4 * group + 2 * half + 1]);
            if (col < LD) *reinterpret_cast<float2*>(to + row * LD + col) = pair;
        }
    }
}
